// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: every rank's selection to every rank.
#ifndef TOPSUM_EXCHANGE_GATHER_ALL_HPP
#define TOPSUM_EXCHANGE_GATHER_ALL_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

namespace topsum {

/// Exchange: every rank receives every selection and sums them in rank order. The result is the union, up to kP entries.
///
/// Known as TopkA or TopK-allgather. Words sent by a rank: 2k(P-1) with the raw codec (ring) + 12 a peer; latency log P to P.
/// Every selected entry is applied, so a scope keeps its promise; and since every rank sees who sent what, `contributor_mean` can be
/// taken. Memory: O(kP). Deterministic.
/// Prefer it for P = 2 or few entries; it grows with P where `ok_topk` does not.
struct gather_all {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "gather_all";
  static constexpr exchange_kind kind = exchange_kind::union_of;
  static constexpr bool counts_contributors = true;

  void validate() const noexcept {}

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  /// Room for P selections, as bytes and as entries, and for their union.
  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, gather_all const&)
        : shape{s},
          counts(static_cast<std::size_t>(s.ranks)),
          sizes(counts.size()),
          out{b.template allocate<std::byte>(codec.template bytes<R, I>(s.capacity, 0, s.n))},
          in{b.template allocate<std::byte>(
              codec.template bytes_at_most<R, I>(s.capacity * counts.size(), counts.size(), s.n))},
          fault{b.template allocate<std::uint32_t>(1)},
          result{b, std::min(s.n, s.capacity * counts.size())},
          ones{b.template allocate<R>(s.contributors ? s.capacity : 0)},
          contributors{b, s.contributors ? result.capacity() : 0} {
      b.fill(ones.view(), R{1});
      for (std::size_t r = 0; r < counts.size(); ++r) {
        lists.emplace_back(b, s.capacity);
        views.push_back(lists.back().view());
      }
      b.fill(fault.view(), std::uint32_t{0});
      b.template reserve_lists<R, I>(counts.size(), s.capacity);
    }
    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    exchange_shape shape;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> sizes;
    typename B::template buffer<std::byte> out;
    typename B::template buffer<std::byte> in;
    typename B::template buffer<std::uint32_t> fault;
    std::vector<entries<B, R, I>> lists;
    std::vector<entries_view<B, R, I>> views, marks;  // marks: the same with ones for values
    entries<B, R, I> result;
    typename B::template buffer<R> ones;
    entries<B, R, I> contributors;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    double const peers = s.ranks - 1;
    auto const bytes = static_cast<double>(codec.template bytes<R, I>(s.capacity, 0, s.n));
    return {peers, peers * bytes, s.ranks * static_cast<double>(s.capacity)};
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const&, state<R>&, workspace<B, R, I, K>& memory) const {
    B& backend = channel.backend();
    std::size_t const n = memory.shape.n;
    std::ranges::fill(memory.sizes, count);
    channel.open(memory.sizes, memory.counts);

    std::size_t total = 0;
    for (std::size_t r = 0; r < memory.counts.size(); ++r) {
      if (memory.counts[r] > memory.shape.capacity)
        throw error{errc::corrupt_message,
                    detail::sentence("gather_all: rank ", r, " announced more entries than may travel"),
                    static_cast<int>(r)};
      memory.sizes[r] = codec.template bytes<R, I>(memory.counts[r], 0, n);
      total += memory.sizes[r];
    }
    auto const mine = memory.out.view().subspan(0, memory.sizes[static_cast<std::size_t>(channel.rank())]);
    codec.encode(backend, run_of(selection, 0, count), 0, n, mine);
    auto const all = memory.in.view().subspan(0, total);
    channel.all_gather_v(mine, all, memory.sizes);

    std::size_t at = 0;
    for (std::size_t r = 0; r < memory.counts.size(); ++r) {
      codec.decode(backend, all.subspan(at, memory.sizes[r]), memory.counts[r], 0, n, memory.views[r],
                   memory.fault.view());
      at += memory.sizes[r];
    }
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "gather_all: a rank's indices do not increase within [0, n)"};
    backend.merge_sum(std::span<entries_view<B, R, I> const>{memory.views}, memory.result.view());
    exchange_outcome<B, R, I> outcome{memory.result.view(), memory.views[static_cast<std::size_t>(channel.rank())],
                                      count};
    if (memory.shape.contributors) {
      memory.marks = memory.views;
      for (auto& list : memory.marks) list.values = memory.ones.view().subspan(0, list.values.size());
      backend.merge_sum(std::span<entries_view<B, R, I> const>{memory.marks}, memory.contributors.view());
      outcome.contributors = memory.contributors.view();
    }
    return outcome;
  }
};

}  // namespace topsum

#endif
