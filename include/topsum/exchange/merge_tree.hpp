// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: a tree of merges, each of which keeps the k largest sums.
#ifndef TOPSUM_EXCHANGE_MERGE_TREE_HPP
#define TOPSUM_EXCHANGE_MERGE_TREE_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/detail/list_messages.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

namespace topsum {

/// Exchange: selections are merged pair by pair up a binomial tree to rank 0; each merge sums two lists and keeps the k largest; the
/// last list is broadcast down the tree.
///
/// Known as gTopk (Shi et al., ICDCS'19); any P here, not powers of two alone. Every rank clears all that it selected; a sum that a
/// merge drops goes to the residual of the rank that merged. (The published code puts back entries that are not in the result, and so
/// loses sums of ranks that had others' entries in them.)
/// Messages of a rank: at most 2 ceil(log2 P) lists up and down, each of at most k entries, and as many counts: at most
/// 2k ceil(log2 P) words (raw codec, 32-bit types) + 12 a peer for headers; 4k ceil(log2 P) on the critical path.
/// Latency 4 ceil(log2 P). Memory: O(k log P). Deterministic: the lower rank's list is summed first.
/// The k largest sums of merges are not quite the k largest sums of all: an entry that is small on each of a pair may be dropped early.
/// Prefer `ok_topk` or `interleaved_quota` for many ranks; this for few entries, where latency is all.
struct merge_tree {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "merge_tree";
  static constexpr exchange_kind kind = exchange_kind::reselecting;

  void validate() const noexcept {}

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, merge_tree const&)
        : shape{s},
          messages{b, codec, name, s.n, s.capacity},
          arrived{b, s.ranks == 1 ? 0 : s.capacity},
          merged{b, s.ranks == 1 ? 0 : std::min(s.n, 2 * s.capacity)},
          kept{entries<B, R, I>{b, arrived.capacity()}, entries<B, R, I>{b, arrived.capacity()}},
          dropped{b, merged.capacity() - arrived.capacity()},
          returned{b, std::min(s.n, (rounds(s.ranks) + 1) * s.capacity)},
          result{b, s.capacity} {
      b.template reserve_lists<R, I>(2, std::max(merged.capacity(), returned.get().capacity()));
    }
    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    exchange_shape shape;
    detail::list_messages<B, R, I, K> messages;
    entries<B, R, I> arrived, merged, kept[2], dropped;
    detail::growing_list<B, R, I> returned;
    entries<B, R, I> result;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    double const rounds = detail::doublings(s.ranks);
    auto const bytes = static_cast<double>(codec.template bytes<R, I>(s.capacity, 0, s.n));
    return {4 * rounds, 2 * rounds * bytes, 3 * rounds * static_cast<double>(s.capacity)};
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const&, state<R>&, workspace<B, R, I, K>& memory) const {
    B& backend = channel.backend();
    int const me = memory.shape.rank;
    int const ranks = memory.shape.ranks;
    std::size_t const k = memory.shape.capacity;
    channel.open();
    memory.returned.clear(backend);
    auto list = selection;
    std::size_t size = count;
    std::size_t into = 0;
    for (int reach = 1; reach < ranks; reach *= 2) {
      if (me % (2 * reach) != 0) {  // this rank's sums go up, and it is done
        memory.messages.pass(channel, codec, me - reach, list, size, channel.nobody, memory.arrived.view());
        if constexpr (!K::lossless) memory.returned.add(backend, memory.messages.lost());
        break;
      }
      if (me + reach >= ranks) continue;
      memory.messages.pass(channel, codec, channel.nobody, list, 0, me + reach, memory.arrived.view());
      entries_view<B, R, I> const both[] = {list, memory.arrived.view()};
      backend.merge_sum(std::span<entries_view<B, R, I> const>{both}, memory.merged.view());
      list = memory.kept[into].view();
      into = 1 - into;
      backend.top_of(memory.merged.view(), k, list);
      size = backend.read(list.count);
      backend.difference(memory.merged.view(), list, memory.dropped.view());
      memory.returned.add(backend, memory.dropped.view());
    }
    memory.messages.broadcast(channel, codec, list, size, 0, memory.result.view());
    if constexpr (!K::lossless) {
      if (me == 0) memory.returned.add(backend, memory.messages.lost());
    }
    return {memory.result.view(), selection, count, memory.returned.get()};
  }

 private:
  [[nodiscard]] static std::size_t rounds(int ranks) {
    return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  }
};

}  // namespace topsum

#endif
