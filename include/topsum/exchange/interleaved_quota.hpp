// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: a fixed number of entries to each owner of interleaved blocks.
#ifndef TOPSUM_EXCHANGE_INTERLEAVED_QUOTA_HPP
#define TOPSUM_EXCHANGE_INTERLEAVED_QUOTA_HPP

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/interleaving.hpp>
#include <topsum/detail/quota_lists.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

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
    workspace(B& b, K const& codec, exchange_shape const& s, interleaved_quota const& stage)
        : detail::quota_lists<B, R, I>{b, s, stage.shares(s.n, s.capacity, static_cast<std::size_t>(s.ranks)),
                                       K::lossless} {
      auto const ranks = static_cast<std::size_t>(s.ranks);
      auto const me = static_cast<std::size_t>(s.rank);
      std::size_t out_bytes = 0;
      std::size_t kept_bytes = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        out_sizes.push_back(r == me ? 0 : codec.template bytes<R, I>(this->sent_counts[r], 0, this->extents[r]));
        kept_sizes.push_back(codec.template bytes<R, I>(this->kept_counts[r], 0, this->extents[r]));
        out_bytes += out_sizes[r];
        kept_bytes += kept_sizes[r];
      }
      std::size_t const mine = this->sent_counts[me];
      in_size = ranks == 1 ? 0 : codec.template bytes<R, I>(mine, 0, this->extents[me]);
      out = b.template allocate<std::byte>(std::max(out_bytes, kept_sizes[me]));
      in = b.template allocate<std::byte>(std::max(in_size * ranks, kept_bytes));
      std::size_t const most_sums = std::min(this->extents[me], mine * ranks);
      bool const gives_back = stage.dropped == residual_rule::collection || !K::lossless;
      applied = entries<B, R, I>{b, stage.dropped == residual_rule::collection ? 0 : this->wanted.total()};
      sums = entries<B, R, I>{b, most_sums};
      kept = entries<B, R, I>{b, this->kept_counts[me]};
      left_over = entries<B, R, I>{b, gives_back ? most_sums : 0};
      decoded = entries<B, R, I>{b, K::lossless ? 0 : this->kept_counts[me]};
      returned = entries<B, R, I>{b, K::lossless ? 0 : most_sums};
      for (std::size_t r = 0; r < ranks; ++r) arrived.emplace_back(b, r == me ? 0 : mine);
      b.template reserve_lists<R, I>(std::max<std::size_t>(ranks, 3), std::max(this->wanted.total(), most_sums));
      messages.resize(ranks);
      sends.reserve(ranks);
      receives.reserve(ranks);
    }

    std::vector<std::size_t> out_sizes, kept_sizes;  // of each owner
    std::size_t in_size = 0;
    typename B::template buffer<std::byte> out, in;
    entries<B, R, I> applied, sums, kept, left_over, decoded, returned;
    std::vector<entries<B, R, I>> arrived;
    std::vector<bytes_in<B>> messages;
    std::vector<transfer<const_bytes_in<B>>> sends;
    std::vector<transfer<bytes_in<B>>> receives;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    double const peers = s.ranks - 1;
    quotas const wanted = shares(s.n, s.capacity, static_cast<std::size_t>(s.ranks));
    auto const bytes = static_cast<double>(codec.template bytes<R, I>(wanted.each, 0, detail::ceil_div(s.n, s.ranks)));
    return {2 * peers, 2 * peers * bytes, 2 * s.ranks * static_cast<double>(wanted.each)};
  }

  /// One step; collective.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t /*count*/, state<R> const&, state<R>&,
                                workspace<B, R, I, K>& memory) const {
    B& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    channel.open();
    auto const parts = memory.cut(backend, selection);
    reduce(channel, codec, parts, memory);
    backend.top_of(memory.sums.view(), memory.kept_counts[me], memory.kept.view());
    gather(channel, codec, memory);

    auto const sent = memory.shape.by_quota && K::lossless ? selection : memory.as_sent(backend, parts);
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
      auto const part = memory.sent_part(backend, parts, to);
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
        memory.merging.push_back(memory.sent_part(backend, parts, me));
      } else {
        codec.decode(backend, memory.messages[r], memory.sent_counts[me], 0, memory.extents[me],
                     memory.arrived[r].view(), memory.fault.view());
        memory.merging.push_back(memory.arrived[r].view());
      }
    }
    memory.expect_sound(backend, name);
    backend.merge_sum(std::span<View const>{memory.merging}, memory.sums.view());
  }

  /// Every owner's kept sums on every rank, put together in the order of positions.
  template <class Channel, class K, class M>
  void gather(Channel& channel, K const& codec, M& memory) const {
    using B = typename Channel::backend_type;
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
    std::size_t at = 0;
    for (std::size_t r = 0; r < memory.kept_counts.size(); ++r) {
      codec.decode(backend, const_bytes_in<B>{all.subspan(at, memory.kept_sizes[r])}, memory.kept_counts[r], 0,
                   memory.extents[r], memory.kept_part(backend, r), memory.fault.view());
      at += memory.kept_sizes[r];
    }
    memory.expect_sound(backend, name);
    memory.put_together(backend);
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
};

}  // namespace topsum

#endif
