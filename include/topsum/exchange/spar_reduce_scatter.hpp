// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: a reduce-scatter in log P rounds that selects again at every merge, and an allgather the same way back.
#ifndef TOPSUM_EXCHANGE_SPAR_REDUCE_SCATTER_HPP
#define TOPSUM_EXCHANGE_SPAR_REDUCE_SCATTER_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/interleaving.hpp>
#include <topsum/detail/list_messages.hpp>
#include <topsum/detail/quota_lists.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

namespace topsum {

/// Exchange: [0, n) in P contiguous regions, q = ceil(k/P) entries of each travel; P - 1 blocks leave a rank in ceil(log2 P) rounds of
/// the reduce-scatter, each merge keeps the q largest sums of a region; the kept sums return the same way.
///
/// SparDL (Zhao et al., ICDE'24) with its global residual collection: senders clear all that they sent, a sum that a merge drops
/// goes to the residual of the rank that merged. Skips are ceil(P/2), ceil(P/4), ..., 1 (the circulant schedule), so any P will do.
/// Under `global{top_k}` ranks select by region in the first place, exactly; what another policy selected is cut to the quotas by
/// magnitude, and filled up with zeros.
/// Words sent by a rank (raw codec, 32-bit types): 4q(P-1) whatever the input, + 12 a peer for headers. Messages 2 ceil(log2 P) and
/// P - 1 headers. Nothing is asked of the others. Memory: O(k log P). Deterministic: the merging rank's sums come first.
/// The result has ceil(k m / n) sums of a region of m values: k to k + P. Prefer `interleaved_quota` where layers differ in scale:
/// contiguous regions give a layer of small gradients as many entries as one of large ones.
struct spar_reduce_scatter {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "spar_reduce_scatter";
  static constexpr exchange_kind kind = exchange_kind::quota;

  void validate() const noexcept {}

  /// What each owner is sent: see `quota_exchange`.
  [[nodiscard]] quotas shares(std::size_t n, std::size_t k, std::size_t ranks) const {
    interleaving const where{n, ranks, std::max<std::size_t>(1, (n + ranks - 1) / ranks)};
    return {where, detail::quota_share(k, where.largest(), n)};
  }

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  template <class B, class R, class I, class K>
  struct workspace : detail::quota_lists<B, R, I> {
    using view = entries_view<B, R, I>;
    workspace(B& b, K const& codec, exchange_shape const& s, spar_reduce_scatter const& stage)
        : detail::quota_lists<B, R, I>{b, s, stage.shares(s.n, s.capacity, static_cast<std::size_t>(s.ranks)), true},
          returned{b, std::min(s.n, this->wanted.total() * (1 + rounds_of(s.ranks)))} {
      auto const ranks = static_cast<std::size_t>(s.ranks);
      std::size_t out_bytes = 0;
      std::size_t kept_bytes = 0;
      for (std::size_t j = 0; j < ranks; ++j) {
        std::size_t const r = this->owner(j);
        sizes.push_back(codec.template bytes<R, I>(this->sent_counts[r], 0, this->extents[r]));
        kept_sizes.push_back(codec.template bytes<R, I>(this->kept_counts[r], 0, this->extents[r]));
        kept_before.push_back(kept_bytes);
        out_bytes += sizes[j];
        kept_bytes += kept_sizes[j];
      }
      kept_before.push_back(kept_bytes);
      out = b.template allocate<std::byte>(out_bytes);
      in = b.template allocate<std::byte>(out_bytes);
      all = b.template allocate<std::byte>(kept_bytes);
      std::size_t const largest = this->wanted.each;
      current = entries<B, R, I>{b, this->wanted.total()};
      arrived = entries<B, R, I>{b, largest};
      merged = entries<B, R, I>{b, 2 * largest};
      dropped = entries<B, R, I>{b, 2 * largest};
      decoded = entries<B, R, I>{b, K::lossless ? 0 : largest};
      b.template reserve_lists<R, I>(std::max<std::size_t>(ranks, 3), returned.get().capacity() + 2 * largest);
      for (std::size_t until = ranks; until > 1; until = (until + 1) / 2) skips.push_back({(until + 1) / 2, until});
    }
    /// The owner of the region j places after this rank's.
    [[nodiscard]] std::size_t owner(std::size_t j) const noexcept {
      return (static_cast<std::size_t>(this->shape.rank) + j) % static_cast<std::size_t>(this->shape.ranks);
    }
    [[nodiscard]] static std::size_t rounds_of(int ranks) {
      return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
    }

    /// Regions [from, until) after this rank's travel `from` ranks on.
    struct skip {
      std::size_t from;
      std::size_t until;
    };
    std::vector<skip> skips;
    std::vector<std::size_t> sizes, kept_sizes,
        kept_before;  // of the region j places after this rank's; and of those before it
    typename B::template buffer<std::byte> out, in, all;
    entries<B, R, I> current, arrived, merged, dropped, decoded;
    detail::growing_list<B, R, I> returned;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    double const peers = s.ranks - 1;
    std::size_t const extent = detail::ceil_div(s.n, s.ranks);
    std::size_t const quota = detail::quota_share(s.capacity, extent, s.n);
    auto const bytes = static_cast<double>(codec.template bytes<R, I>(quota, 0, extent));
    return {2.0 * detail::doublings(s.ranks), 2 * peers * bytes, 3 * s.ranks * static_cast<double>(quota)};
  }

  /// One step; collective.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t /*count*/, state<R> const&, state<R>&,
                                workspace<B, R, I, K>& memory) const {
    B& backend = channel.backend();
    channel.open();
    memory.returned.clear(backend);
    auto const parts = memory.cut(backend, selection);
    backend.copy(typename B::template span<I const>{parts.indices}, memory.current.view().indices);
    backend.copy(typename B::template span<R const>{parts.values}, memory.current.view().values);
    auto const sent = memory.shape.by_quota ? selection : memory.as_sent(backend, parts);
    for (auto const& skip : memory.skips) reduce(channel, codec, skip, memory);
    gather(channel, codec, memory);
    return {memory.result.view(), sent, memory.wanted.total(), memory.returned.get()};
  }

 private:
  /// Sends the far regions on, and adds what comes of the near ones.
  template <class Channel, class K, class Skip, class M>
  void reduce(Channel& channel, K const& codec, Skip const& skip, M& memory) const {
    using B = typename Channel::backend_type;
    B& backend = channel.backend();
    std::size_t out_bytes = 0;
    for (std::size_t j = skip.from; j < skip.until; ++j) {
      std::size_t const r = memory.owner(j);
      auto const part = memory.sent_part(backend, memory.current.view(), r);
      auto const message = memory.out.view().subspan(out_bytes, memory.sizes[j]);
      codec.encode(backend, run_of(part, 0, part.capacity()), 0, memory.extents[r], message);
      if constexpr (!K::lossless) keep_loss(backend, codec, message, part, r, memory);
      out_bytes += memory.sizes[j];
    }
    std::size_t const near = skip.until - skip.from;
    std::size_t in_bytes = 0;
    for (std::size_t j = 0; j < near; ++j) in_bytes += memory.sizes[j];
    pass(channel, skip.from, memory.out.view().subspan(0, out_bytes), memory.in.view().subspan(0, in_bytes), memory);
    std::size_t at = 0;
    for (std::size_t j = 0; j < near; ++j) {
      std::size_t const r = memory.owner(j);
      auto const part = memory.sent_part(backend, memory.current.view(), r);
      std::size_t const count = part.capacity();
      auto const arrived = memory.arrived.view();
      codec.decode(backend, const_bytes_in<B>{memory.in.view().subspan(at, memory.sizes[j])}, count, 0,
                   memory.extents[r], arrived, memory.fault.view());
      memory.expect_sound(backend, name);
      at += memory.sizes[j];
      typename M::view const both[] = {part, arrived};
      backend.merge_sum(std::span<typename M::view const>{both}, memory.merged.view());
      backend.top_of(memory.merged.view(), count, part);
      give_back(backend, memory.merged.view(), part, r, memory);
    }
  }

  /// The kept sums of this rank's region, and then of those that come, one message of regions a round.
  template <class Channel, class K, class M>
  void gather(Channel& channel, K const& codec, M& memory) const {
    using B = typename Channel::backend_type;
    B& backend = channel.backend();
    std::size_t const me = memory.owner(0);
    auto const mine = memory.sent_part(backend, memory.current.view(), me);
    auto const kept = memory.kept_part(backend, me);
    backend.top_of(mine, memory.kept_counts[me], kept);
    give_back(backend, mine, kept, me, memory);
    auto const message = memory.all.view().subspan(0, memory.kept_sizes[0]);
    codec.encode(backend, run_of(kept, 0, memory.kept_counts[me]), 0, memory.extents[me], message);
    if constexpr (!K::lossless) keep_loss(backend, codec, message, kept, me, memory);
    auto const& bytes_before = memory.kept_before;
    for (std::size_t i = memory.skips.size(); i-- > 0;) {
      auto const [from, until] = memory.skips[i];
      std::size_t const begin = bytes_before[from];
      // Regions travel back the way they came: those that this rank sent on come from there.
      pass(channel, static_cast<std::size_t>(memory.shape.ranks) - from,
           memory.all.view().subspan(0, bytes_before[until - from]),
           memory.all.view().subspan(begin, bytes_before[until] - begin), memory);
    }
    for (std::size_t j = 0; j < memory.kept_sizes.size(); ++j) {
      std::size_t const r = memory.owner(j);
      codec.decode(backend, const_bytes_in<B>{memory.all.view().subspan(bytes_before[j], memory.kept_sizes[j])},
                   memory.kept_counts[r], 0, memory.extents[r], memory.kept_part(backend, r), memory.fault.view());
    }
    memory.expect_sound(backend, name);
    memory.put_together(backend);
  }

  /// A message to the rank `distance` after this one, and one from the rank as far before it.
  template <class Channel, class Bytes, class M>
  static void pass(Channel& channel, std::size_t distance, Bytes out, Bytes in, M& memory) {
    auto const ranks = static_cast<std::size_t>(memory.shape.ranks);
    auto const to = static_cast<int>(memory.owner(distance));
    auto const from = static_cast<int>(memory.owner(ranks - distance));
    channel.pass(to, out, from, in);
  }

  /// Entries of `all` that `kept` lacks, of owner r's region, wait here.
  template <class B, class View, class M>
  static void give_back(B& backend, View all, View kept, std::size_t r, M& memory) {
    backend.difference(all, kept, memory.dropped.view());
    backend.positions(memory.dropped.view(), memory.wanted.where, r);
    memory.returned.add(backend, memory.dropped.view());
  }

  /// What receivers do not get of a list of owner r's waits here.
  template <class B, class K, class Bytes, class View, class M>
  static void keep_loss(B& backend, K const& codec, Bytes message, View list, std::size_t r, M& memory) {
    auto const decoded = memory.decoded.view();
    codec.decode(backend, const_bytes_in<B>{message}, list.capacity(), 0, memory.extents[r], decoded,
                 memory.fault.view());
    backend.divide(decoded, -1);
    View const both[] = {list, decoded};
    backend.merge_sum(std::span<View const>{both}, memory.dropped.view());
    backend.positions(memory.dropped.view(), memory.wanted.where, r);
    memory.returned.add(backend, memory.dropped.view());
  }
};

}  // namespace topsum

#endif
