// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: a fixed number of entries to each owner of interleaved blocks.
#ifndef TOPSUM_EXCHANGE_INTERLEAVED_QUOTA_HPP
#define TOPSUM_EXCHANGE_INTERLEAVED_QUOTA_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/interleaving.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Exchange: every rank sends every owner the q largest entries of that owner's coordinates; the owner sums them and keeps the q
/// largest sums. All sizes are known when the plan is made.
///
/// Coordinates are dealt to owners in small blocks (`core/interleaving.hpp`), so that every owner's share of the large entries is
/// about the same, and a fixed quota loses little: q = ceil(k m / n) for the largest number m of coordinates. The result has
/// ceil(k m_r / n) sums of owner r with m_r coordinates: k to k + P in all, n where k = n (then it equals `dense`).
/// Under `global{top_k}` ranks select by these quotas in the first place, exactly; what another policy selected is cut to them by
/// magnitude, and filled up with zeros.
///
/// Words sent by a rank (raw codec, 32-bit types): 2q to each peer, then 2q in a ring: 4q(P-1), about 4k(P-1)/P, whatever the
/// input; + 12 a peer for headers. Messages: 3(P-1). Latency: P + log P. Nothing is asked of the others, nothing is balanced.
/// Memory: O(k) + O(P). Deterministic: sums are taken in rank order. Any P; ranks may have nothing to send.
/// Prefer it to `ok_topk` for steady messages and latency. A quota below about 30 entries loses quality: prefer `ok_topk` there,
/// or `gather_all`.
struct interleaved_quota {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "interleaved_quota";
  static constexpr exchange_kind kind = exchange_kind::quota;

  /// What becomes of entries whose sum an owner did not keep.
  enum class residual_rule : unsigned char {
    intersection,  ///< senders keep them, as in Ok-Topk: steadier where momentum follows the aggregation
    collection  ///< senders clear all that they sent, the owner keeps the dropped sums (SparDL's global residual collection)
  };
  residual_rule dropped = residual_rule::intersection;
  std::optional<std::size_t> block{};  ///< values of a block, at least 1; default clamp(n / 8P, 1, 32)

  void validate() const {
    if (block == std::size_t{0}) throw error{errc::bad_argument, "interleaved_quota: .block = 0; write at least 1"};
  }

  /// What each owner is sent: see `quota_exchange`.
  [[nodiscard]] quotas shares(std::size_t n, std::size_t k, std::size_t ranks) const {
    std::size_t const largest_block = std::max<std::size_t>(1, (n + ranks - 1) / ranks);
    interleaving const where{n, ranks,
                             std::min(largest_block, block.value_or(std::clamp<std::size_t>(n / (8 * ranks), 1, 32)))};
    return {where, share_of(k, where.largest(), n)};
  }

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  template <class B, class R, class I, class K>
  struct workspace {
    using view = entries_view<B, R, I>;
    workspace(B& b, K const& codec, exchange_shape const& s, interleaved_quota const& stage)
        : shape{s}, wanted{stage.shares(s.n, s.capacity, static_cast<std::size_t>(s.ranks))} {
      auto const ranks = static_cast<std::size_t>(s.ranks);
      auto const me = static_cast<std::size_t>(s.rank);
      std::size_t out_bytes = 0;
      std::size_t kept_bytes = 0;
      std::size_t total_kept = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        std::size_t const m = wanted.where.size_of(r);
        extents.push_back(m);
        sent_counts.push_back(wanted.of(r));
        kept_counts.push_back(share_of(s.capacity, m, s.n));
        out_sizes.push_back(r == me ? 0 : codec.template bytes<R, I>(sent_counts[r], 0, m));
        kept_sizes.push_back(codec.template bytes<R, I>(kept_counts[r], 0, m));
        out_bytes += out_sizes[r];
        kept_bytes += kept_sizes[r];
        total_kept += kept_counts[r];
      }
      std::size_t const total = wanted.total();
      std::size_t const mine = sent_counts[me];
      in_size = ranks == 1 ? 0 : codec.template bytes<R, I>(mine, 0, extents[me]);
      out = b.template allocate<std::byte>(std::max(out_bytes, kept_sizes[me]));
      in = b.template allocate<std::byte>(std::max(in_size * ranks, kept_bytes));
      ends = b.template allocate<std::size_t>(ranks);
      counts = b.template allocate<std::size_t>(2 * ranks);
      fault = b.template allocate<std::uint32_t>(1);
      b.fill(fault.view(), std::uint32_t{0});

      bool const as_selected = s.by_quota && K::lossless;  // what is sent is the selection
      std::size_t const most_sums = std::min(extents[me], mine * ranks);
      bool const gives_back = stage.dropped == residual_rule::collection || !K::lossless;
      dealt = entries<B, R, I>{b, s.by_quota ? total : s.capacity};
      parts = entries<B, R, I>{b, s.by_quota ? 0 : total};
      sent = entries<B, R, I>{b, as_selected ? 0 : total};
      applied = entries<B, R, I>{b, stage.dropped == residual_rule::collection ? 0 : total};
      sums = entries<B, R, I>{b, most_sums};
      kept = entries<B, R, I>{b, kept_counts[me]};
      gathered = entries<B, R, I>{b, total_kept};
      result = entries<B, R, I>{b, total_kept};
      left_over = entries<B, R, I>{b, gives_back ? most_sums : 0};
      decoded = entries<B, R, I>{b, K::lossless ? 0 : kept_counts[me]};
      returned = entries<B, R, I>{b, K::lossless ? 0 : most_sums};
      for (std::size_t r = 0; r < ranks; ++r) arrived.emplace_back(b, r == me ? 0 : mine);
      b.template reserve_lists<R, I>(std::max<std::size_t>(ranks, 3), std::max(total, most_sums));
      host_ends.resize(ranks);
      messages.resize(ranks);
      sends.reserve(ranks);
      receives.reserve(ranks);
      merging.reserve(std::max<std::size_t>(ranks, 3));
    }

    /// Owner r's stretch of a list of so many entries for each owner. Its count has a place of its own, in `set` 0 or 1.
    view stretch(B& b, view const& list, std::vector<std::size_t> const& each, std::size_t r, std::size_t set) {
      std::size_t first = 0;
      for (std::size_t before = 0; before < r; ++before) first += each[before];
      view const part{list.indices.subspan(first, each[r]), list.values.subspan(first, each[r]),
                      counts.view().subspan(2 * r + set, 1)};
      b.fill(part.count, each[r]);
      return part;
    }

    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    exchange_shape shape;
    quotas wanted;
    std::vector<std::size_t> extents, sent_counts, kept_counts, out_sizes, kept_sizes, host_ends;  // of each owner
    std::size_t in_size = 0;
    typename B::template buffer<std::byte> out, in;
    typename B::template buffer<std::size_t> ends, counts;
    typename B::template buffer<std::uint32_t> fault;
    entries<B, R, I> dealt, parts, sent, applied, sums, kept, gathered, result, left_over, decoded, returned;
    std::vector<entries<B, R, I>> arrived;
    std::vector<bytes_in<B>> messages;
    std::vector<transfer<const_bytes_in<B>>> sends;
    std::vector<transfer<bytes_in<B>>> receives;
    std::vector<view> merging;
  };

  /// One step; collective.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t /*count*/, state<R> const&, state<R>&,
                                workspace<B, R, I, K>& memory) const {
    B& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    channel.open();
    auto const parts = cut_to_quotas(backend, selection, memory);
    reduce(channel, codec, parts, memory);
    backend.top_of(memory.sums.view(), memory.kept_counts[me], memory.kept.view());
    gather(channel, codec, memory);

    auto const sent = memory.shape.by_quota && K::lossless ? selection : as_sent(backend, parts, memory);
    exchange_outcome<B, R, I> outcome{memory.result.view(), sent, memory.wanted.total(), {}};
    if (dropped == residual_rule::intersection) {
      backend.intersect(sent, memory.result.view(), memory.applied.view());
      outcome.applied = memory.applied.view();
    }
    if (dropped == residual_rule::collection || !K::lossless) outcome.returned = what_is_left(backend, memory);
    return outcome;
  }

  void describe(description& out) const {
    out.open(name);
    out("dropped", dropped);
    out("block", block);
    out.close();
  }

 private:
  /// ceil(k m / n) for k, m <= n < 2^63, by doubling: no product overflows.
  [[nodiscard]] static constexpr std::size_t share_of(std::size_t k, std::size_t m, std::size_t n) noexcept {
    std::size_t quotient = 0;
    std::size_t rest = 0;
    for (int bit = static_cast<int>(std::bit_width(m)); n != 0 && bit-- > 0;) {
      rest *= 2;
      quotient = 2 * quotient + (rest >= n ? 1 : 0);
      rest -= rest >= n ? n : 0;
      rest += (m >> bit & 1) != 0 ? k : 0;
      quotient += rest >= n ? 1 : 0;
      rest -= rest >= n ? n : 0;
    }
    return quotient + (rest != 0 ? 1 : 0);
  }

  /// The selection by owner, each owner's entries by place, as many as its quota. Where ranks selected by quotas nothing has to
  /// be cut, or asked.
  template <class B, class View, class M>
  View cut_to_quotas(B& backend, View selection, M& memory) const {
    backend.deal(selection, memory.wanted.where, memory.dealt.view(), memory.ends.view());
    if (memory.shape.by_quota) return memory.dealt.view();
    backend.read(memory.ends.view(), std::span<std::size_t>{memory.host_ends});
    std::size_t begin = 0;
    for (std::size_t r = 0; r < memory.host_ends.size(); ++r) {
      auto const all = memory.dealt.view();
      std::size_t const size = memory.host_ends[r] - begin;
      View const dealt{all.indices.subspan(begin, size), all.values.subspan(begin, size),
                       memory.counts.view().subspan(2 * r + 1, 1)};
      backend.fill(dealt.count, size);
      auto const part = memory.stretch(backend, memory.parts.view(), memory.sent_counts, r, 0);
      backend.top_of(dealt, part.capacity(), part);
      backend.pad(part, part.capacity());
      begin = memory.host_ends[r];
    }
    return memory.parts.view();
  }

  /// Sends each owner its part and sums what arrives for this one, in the order of ranks.
  template <class Channel, class K, class View, class M>
  void reduce(Channel& channel, K const& codec, View parts, M& memory) const {
    using B = typename Channel::backend_type;
    B& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    std::size_t const ranks = memory.sent_counts.size();
    memory.sends.clear();
    memory.receives.clear();
    std::size_t at = 0;
    for (std::size_t s = 1; s < ranks; ++s) {
      std::size_t const to = (me + s) % ranks;
      std::size_t const source = (me + ranks - s) % ranks;
      auto const part = memory.stretch(backend, parts, memory.sent_counts, to, 0);
      auto const out = memory.out.view().subspan(at, memory.out_sizes[to]);
      codec.encode(backend, run_of(part, 0, part.capacity()), 0, memory.extents[to], out);
      at += memory.out_sizes[to];
      if constexpr (!K::lossless)
        codec.decode(backend, out, part.capacity(), 0, memory.extents[to], part, memory.fault.view());
      memory.messages[source] = memory.in.view().subspan((s - 1) * memory.in_size, memory.in_size);
      if (out.size() != 0) memory.sends.push_back({static_cast<int>(to), out});
      if (memory.in_size != 0) memory.receives.push_back({static_cast<int>(source), memory.messages[source]});
    }
    auto group = channel.start(std::span<transfer<const_bytes_in<B>> const>{memory.sends},
                               std::span<transfer<bytes_in<B>> const>{memory.receives});
    channel.finish(group);
    memory.merging.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == me) {
        memory.merging.push_back(memory.stretch(backend, parts, memory.sent_counts, me, 0));
      } else {
        codec.decode(backend, memory.messages[r], memory.sent_counts[me], 0, memory.extents[me],
                     memory.arrived[r].view(), memory.fault.view());
        memory.merging.push_back(memory.arrived[r].view());
      }
    }
    expect_sound(backend, memory);
    backend.merge_sum(std::span<View const>{memory.merging}, memory.sums.view());
  }

  /// Every owner's kept sums on every rank, put together in the order of positions.
  template <class Channel, class K, class M>
  void gather(Channel& channel, K const& codec, M& memory) const {
    using view = typename M::view;
    auto& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    auto const mine = memory.out.view().subspan(0, memory.kept_sizes[me]);
    codec.encode(backend, run_of(memory.kept.view(), 0, memory.kept_counts[me]), 0, memory.extents[me], mine);
    if constexpr (!K::lossless)
      codec.decode(backend, mine, memory.kept_counts[me], 0, memory.extents[me], memory.decoded.view(),
                   memory.fault.view());
    std::size_t bytes = 0;
    for (std::size_t const size : memory.kept_sizes) bytes += size;
    auto const all = memory.in.view().subspan(0, bytes);
    channel.all_gather_v(mine, all, memory.kept_sizes);
    memory.merging.clear();
    std::size_t at = 0;
    for (std::size_t r = 0; r < memory.kept_counts.size(); ++r) {
      auto const part = memory.stretch(backend, memory.gathered.view(), memory.kept_counts, r, 1);
      codec.decode(backend, all.subspan(at, memory.kept_sizes[r]), memory.kept_counts[r], 0, memory.extents[r], part,
                   memory.fault.view());
      at += memory.kept_sizes[r];
      memory.merging.push_back(part);
    }
    expect_sound(backend, memory);
    for (std::size_t r = 0; r < memory.merging.size(); ++r)
      backend.positions(memory.merging[r], memory.wanted.where, r);
    backend.merge_sum(std::span<view const>{memory.merging}, memory.result.view());
  }

  /// All that this rank sent, at its positions.
  template <class B, class View, class M>
  View as_sent(B& backend, View parts, M& memory) const {
    memory.merging.clear();
    for (std::size_t r = 0; r < memory.sent_counts.size(); ++r) {
      memory.merging.push_back(memory.stretch(backend, parts, memory.sent_counts, r, 0));
      backend.positions(memory.merging[r], memory.wanted.where, r);
    }
    backend.merge_sum(std::span<View const>{memory.merging}, memory.sent.view());
    return memory.sent.view();
  }

  /// For this owner's residual: sums that it did not keep, and what encoding the others lost.
  template <class B, class M>
  auto what_is_left(B& backend, M& memory) const {
    using view = typename M::view;
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    auto left = memory.left_over.view();
    if (dropped == residual_rule::collection) {
      backend.difference(memory.sums.view(), memory.kept.view(), left);
    } else {
      backend.fill(left.count, std::size_t{0});
    }
    if (memory.decoded.capacity() != 0) {
      backend.divide(memory.decoded.view(), -1);
      view const all[] = {left, memory.kept.view(), memory.decoded.view()};
      backend.merge_sum(std::span<view const>{all}, memory.returned.view());
      left = memory.returned.view();
    }
    backend.positions(left, memory.wanted.where, me);
    return left;
  }

  template <class B, class M>
  static void expect_sound(B& backend, M& memory) {
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "interleaved_quota: a rank's places do not increase below an owner's size"};
  }
};

}  // namespace topsum

#endif
