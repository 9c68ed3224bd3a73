// SPDX-License-Identifier: BSL-1.0
/// \file
/// How the ranks of an `aligned` exchange find their common support.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <topsum/codec/packed.hpp>
#include <topsum/core/interleaving.hpp>
#include <topsum/detail/quota_lists.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

namespace detail {

/// Nothing is kept between steps.
struct no_agreement_state {
  explicit no_agreement_state(exchange_shape const&) {}
};

/// The index half of a plan's codec; `packed` where it has none.
template <class K>
[[nodiscard]] constexpr auto index_codec_of(K const& codec) {
  if constexpr (requires { codec.indices; }) {
    return codec.indices;
  } else {
    return packed{};
  }
}

}  // namespace detail

/// Agreement: the ranks lead in turn, one a step; the leader's selection is the support.
///
/// Words sent: k log2(n) / 32 by the leader to each child of a binomial tree, or fewer with a codec for indices; 2 a child for the count.
/// Latency log P. Source: ScaleCom's cyclic local top-k (Chen et al., NeurIPS'20, section 3).
struct leader {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "leader";
  static constexpr bool keeps_scope = true;

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept { return s.capacity; }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, leader const&)
        : shape{s},
          message{b.template allocate<std::byte>(detail::index_codec_of(codec).bytes_at_most(s.capacity, 1, s.n))},
          fault{b.template allocate<std::uint32_t>(1)} {
      b.fill(fault.view(), std::uint32_t{0});
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return shape.capacity; }

    exchange_shape shape;
    typename B::template buffer<std::byte> message;
    typename B::template buffer<std::uint32_t> fault;
  };

  /// Writes the support's indices and count to `support`, the same on every rank; returns the count. Collective; opens the step.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const&, S&, M& memory,
                    View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const indices = detail::index_codec_of(codec);
    channel.open();
    auto const ranks = static_cast<std::uint64_t>(memory.shape.ranks);
    auto const root = static_cast<int>(channel.step() % ranks);
    std::uint64_t number = count;
    channel.broadcast(number, root);
    if (number > memory.shape.capacity)
      throw error{errc::corrupt_message,
                  detail::sentence("aligned: rank ", root, " announced more entries than may travel"), root};
    auto const agreed = static_cast<std::size_t>(number);
    auto const message = memory.message.view().subspan(0, indices.bytes(agreed, memory.shape.n));
    auto const chosen = selection.indices.subspan(0, memory.shape.rank == root ? agreed : 0);
    if (memory.shape.rank == root && agreed != 0)
      indices.template encode<B, I>(backend, typename B::template span<I const>{chosen}, 0, memory.shape.n, message);
    channel.broadcast(message, root);
    backend.fill(support.count, agreed);
    if (agreed == 0) return 0;
    indices.template decode<B, I>(backend, const_bytes_in<B>{message}, 0, memory.shape.n,
                                  support.indices.subspan(0, agreed));
    backend.check(support, 0, memory.shape.n, memory.fault.view());
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "aligned: the leader's indices do not increase within [0, n)"};
    return agreed;
  }
};

/// Agreement: every rank chooses in coordinates that are its alone, so that nothing is chosen twice: the q largest of its selection
/// in blocks dealt out as `interleaved_quota` deals them, filled up at the smallest places. The support has k to k + P entries.
///
/// Words sent: the q indices of a rank in a ring, q (P-1) log2(n/P) / 32 or fewer with a codec for indices; sizes are known with the
/// plan. Latency log P to P. Source: MiCRO (Yoon & Oh, HiPC'23) and ExDyna, whose thresholds are replaced by exact counts.
struct owners {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "owners";

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    return std::min(s.n, s.capacity + static_cast<std::size_t>(s.ranks));
  }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    using view = entries_view<B, R, I>;
    workspace(B& b, K const& codec, exchange_shape const& s, owners const&)
        : shape{s},
          where{s.n, static_cast<std::size_t>(s.ranks),
                std::clamp<std::size_t>(s.n / (8 * static_cast<std::size_t>(s.ranks)), 1, 32)} {
      auto const indices = detail::index_codec_of(codec);
      std::size_t total = 0;
      std::size_t bytes = 0;
      for (std::size_t r = 0; r < where.owners; ++r) {
        extents.push_back(where.size_of(r));
        counts.push_back(detail::quota_share(s.capacity, extents[r], s.n));
        sizes.push_back(indices.bytes(counts[r], extents[r]));
        total += counts[r];
        bytes += sizes[r];
      }
      auto const me = static_cast<std::size_t>(s.rank);
      dealt = entries<B, R, I>{b, s.capacity};
      part = entries<B, R, I>{b, counts[me]};
      gathered = entries<B, R, I>{b, total};
      b.fill(gathered.view().values, R{0});
      ends = b.template allocate<std::size_t>(where.owners);
      slots = b.template allocate<std::size_t>(where.owners + 1);
      out = b.template allocate<std::byte>(sizes[me]);
      in = b.template allocate<std::byte>(bytes);
      fault = b.template allocate<std::uint32_t>(1);
      b.fill(fault.view(), std::uint32_t{0});
      b.template reserve_lists<R, I>(where.owners, std::max(total, s.capacity));
      host_ends.resize(where.owners);
      merging.reserve(where.owners);
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return gathered.capacity(); }
    [[nodiscard]] view stretch(B& b, view const& list, std::size_t first, std::size_t size, std::size_t slot) {
      view const stretched{list.indices.subspan(first, size), list.values.subspan(first, size),
                           slots.view().subspan(slot, 1)};
      b.fill(stretched.count, size);
      return stretched;
    }

    exchange_shape shape;
    interleaving where;
    std::vector<std::size_t> extents, counts, sizes, host_ends;  // of each owner
    entries<B, R, I> dealt, part, gathered;
    typename B::template buffer<std::size_t> ends, slots;
    typename B::template buffer<std::byte> out, in;
    typename B::template buffer<std::uint32_t> fault;
    std::vector<view> merging;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t /*count*/, S const&, S&, M& memory,
                    View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const indices = detail::index_codec_of(codec);
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    channel.open();
    backend.deal(selection, memory.where, memory.dealt.view(), memory.ends.view());
    backend.read(memory.ends.view(), std::span<std::size_t>{memory.host_ends});
    std::size_t const begin = me == 0 ? 0 : memory.host_ends[me - 1];
    auto const mine = memory.part.view();
    backend.top_of(
        memory.stretch(backend, memory.dealt.view(), begin, memory.host_ends[me] - begin, memory.where.owners),
        memory.counts[me], mine);
    backend.pad(mine, memory.counts[me]);
    if (memory.sizes[me] != 0)
      indices.template encode<B, I>(backend, typename B::template span<I const>{mine.indices}, 0, memory.extents[me],
                                    memory.out.view());
    channel.all_gather_v(memory.out.view(), memory.in.view(), memory.sizes);
    memory.merging.clear();
    std::size_t at = 0;
    std::size_t entry = 0;
    for (std::size_t r = 0; r < memory.counts.size(); ++r) {
      auto const part = memory.stretch(backend, memory.gathered.view(), entry, memory.counts[r], r);
      if (memory.counts[r] != 0)
        indices.template decode<B, I>(backend, const_bytes_in<B>{memory.in.view().subspan(at, memory.sizes[r])}, 0,
                                      memory.extents[r], part.indices);
      backend.check(part, 0, memory.extents[r], memory.fault.view());
      backend.positions(part, memory.where, r);
      memory.merging.push_back(part);
      at += memory.sizes[r];
      entry += memory.counts[r];
    }
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "aligned: a rank's places do not increase below its coordinates' number"};
    backend.merge_sum(std::span<View const>{memory.merging}, support);
    return entry;
  }
};

/// Agreement: none is needed, since all ranks select the same indices: the policy is one that does (`shared_random`).
///
/// Words sent: none but headers. A rank that selects another number of entries is found out (errc::mismatch, on every rank).
/// Source: random-k with a shared seed (Stich et al., NeurIPS'18; its allreduce-friendly form in PowerSGD's comparison).
struct as_selected {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "as_selected";
  static constexpr bool needs_alike = true;
  static constexpr bool keeps_scope = true;

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept { return s.capacity; }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B&, K const&, exchange_shape const& s, as_selected const&)
        : shape{s}, ours(static_cast<std::size_t>(s.ranks)), theirs(ours.size()) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return shape.capacity; }
    exchange_shape shape;
    std::vector<std::size_t> ours, theirs;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const&, View selection, std::size_t count, S const&, S&, M& memory,
                    View support) const {
    std::ranges::fill(memory.ours, count);
    channel.open(memory.ours, memory.theirs);
    for (std::size_t r = 0; r < memory.theirs.size(); ++r) {
      if (memory.theirs[r] != count)
        throw error{
            errc::mismatch,
            detail::sentence("aligned: rank ", r, " selected ", memory.theirs[r], " entries where this rank has ",
                             count, "; as_selected needs a policy that selects alike on all ranks"),
            static_cast<int>(r)};
    }
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    backend.copy(typename B::template span<I const>{selection.indices.subspan(0, count)}, support.indices);
    backend.fill(support.count, count);
    return count;
  }
};

/// Agreement: the support that another one finds, kept for `every` steps.
///
///     topsum::aligned{topsum::kept_mask{topsum::leader{}, 16}}
///
/// Words sent: those of `from` in one step of `every`. In between selections are made and not looked at, but residuals grow where the mask
/// is not, so that a later one takes them up. Source: masks kept over steps as in MiCRO's and sparse training's practice.
/// What is kept lies on the host too, k indices, so that a plan that is saved goes on with it.
template <class Agreement = leader>
struct kept_mask {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "kept_mask";
  static constexpr bool keeps_scope = requires { requires Agreement::keeps_scope; };

  Agreement from{};
  std::uint64_t every = 16;  ///< steps from one agreement to the next

  constexpr explicit kept_mask(Agreement on = {}, std::uint64_t steps = 16) : from{on}, every{steps} {}

  void validate() const {
    if (every == 0) throw error{errc::bad_argument, "kept_mask: .every = 0; write at least 1"};
    from.validate();
  }

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    return Agreement::support_at_most(s);
  }

  /// The indices, and how many they are.
  template <class R>
  struct state {
    explicit state(exchange_shape const& s) : indices(Agreement::support_at_most(s)), inner{s} {}
    template <class V>
    void visit(V& visitor) {
      visitor("indices", indices);
      visitor("count", count);
      visitor("inner", inner);
    }
    /// Whether loaded indices increase and lie in [0, n).
    [[nodiscard]] bool fits(exchange_shape const& s) const {
      if (count > indices.size() || !detail::exchange_state_fits(inner, s)) return false;
      for (std::size_t i = 0; i < count; ++i) {
        if (indices[i] >= s.n || (i > 0 && indices[i] <= indices[i - 1])) return false;
      }
      return true;
    }
    std::vector<std::uint64_t> indices;
    std::uint64_t count = none;
    typename Agreement::template state<R> inner;
  };

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, kept_mask const& stage)
        : on{b, codec, s, stage.from}, host(on.capacity()) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return on.capacity(); }
    typename Agreement::template workspace<B, R, I, K> on;
    std::vector<I> host;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const& before, S& after,
                    M& memory, View support) const {
    using I = typename M::index;
    auto& backend = channel.backend();
    std::span<I> const host{memory.host};
    after = before;
    if (before.count == none || channel.step() % every == 0) {
      std::size_t const agreed = from.agree(channel, codec, selection, count, before.inner, after.inner, memory.on,
                                            support);
      backend.read(support.indices.subspan(0, agreed), host.first(agreed));
      std::ranges::copy(host.first(agreed), after.indices.begin());
      after.count = agreed;
      return agreed;
    }
    channel.open();
    auto const kept = static_cast<std::size_t>(before.count);
    std::ranges::transform(std::span{before.indices}.first(kept), host.begin(),
                           [](std::uint64_t i) { return static_cast<I>(i); });
    backend.write(std::span<I const>{host.first(kept)}, support.indices.subspan(0, kept));
    backend.fill(support.count, kept);
    return kept;
  }

  void describe(description& out) const {
    out.open(name);
    out("from", from);
    out("every", every);
    out.close();
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};
};

/// Agreement: the support is what another exchange's result would have: it runs first, and of its result only the indices are used.
///
///     topsum::aligned{topsum::chosen_by{topsum::interleaved_quota{}}}
///
/// Words sent: that exchange's. What it reduces decides by all ranks' sums, and every rank then gives its whole accumulators there, those
/// that it did not select included. Costs half again as many words as the exchange alone for the values.
template <exchange Exchange>
struct chosen_by {
  static_assert(Exchange::kind != exchange_kind::dense && Exchange::kind != exchange_kind::aligned,
                "topsum: chosen_by asks for an exchange of selected entries; `dense` and `aligned` are none");
  static_assert(std::constructible_from<typename Exchange::template state<float>, exchange_shape const&>,
                "topsum: chosen_by asks for one exchange; `hierarchical` and `automatic` are made of several");
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "chosen_by";

  Exchange by;

  constexpr explicit chosen_by(Exchange exchange) : by{exchange} {}

  void validate() const { by.validate(); }

  /// Entries that a support may have, for a shape: all ranks' selections, each filled up by an entry an owner.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    auto const ranks = static_cast<std::size_t>(s.ranks);
    return std::min(s.n, (s.capacity + ranks) * ranks);
  }

  template <class R>
  using state = typename Exchange::template state<R>;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, chosen_by const& stage) : on{b, codec, s, stage.by} {}
    [[nodiscard]] std::size_t capacity() const noexcept { return on.result_capacity(); }
    typename Exchange::template workspace<B, R, I, K> on;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const& before, S& after,
                    M& memory, View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const chosen = by.run(channel, codec, selection, count, before, after, memory.on).result;
    std::size_t const agreed = backend.read(chosen.count);
    backend.copy(typename B::template span<I const>{chosen.indices.subspan(0, agreed)}, support.indices);
    backend.fill(support.count, agreed);
    return agreed;
  }

  void describe(description& out) const {
    out.open(name);
    out("by", by);
    out.close();
  }
};

}  // namespace topsum

#endif
