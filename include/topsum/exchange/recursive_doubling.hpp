// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: all ranks merge with partners at doubling distances.
#ifndef TOPSUM_EXCHANGE_RECURSIVE_DOUBLING_HPP
#define TOPSUM_EXCHANGE_RECURSIVE_DOUBLING_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <topsum/codec/raw.hpp>
#include <topsum/codec/switching.hpp>
#include <topsum/detail/list_messages.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

namespace topsum {

/// Exchange: in round j each rank swaps its list with the rank whose number differs in bit j, and both sum the two. After log P
/// rounds every rank has the union of all selections.
///
/// SparCML's SSAR (Renggli et al., SC'19, section 5.3). Where P is no power of two, the ranks beyond the largest one hand their
/// selection to a partner first and get the result last. A message turns from sparse to a bitmap with its values where that is smaller
/// (`switching`), by a rule both sides know.
/// Words sent by a rank (raw codec, 32-bit types): from 2k log2 P, where all select the same, to 2k(P-1), where nobody does, for
/// P = 2^q; at most 2kP more where ranks are folded; never more than n + n/32 + 2 a message; + 12 a peer for headers, 2 a round for
/// counts. Latency 2 log P (+4). Memory: O(min(n, kP)). Every selected entry is applied, so a scope keeps its promise.
/// Deterministic: the lower block of ranks is summed first, on both sides.
/// Prefer it to `gather_all` where selections overlap; `ok_topk` or `interleaved_quota` where the union would be large.
struct recursive_doubling {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "recursive_doubling";
  static constexpr exchange_kind kind = exchange_kind::union_of;

  void validate() const noexcept {}

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, recursive_doubling const&)
        : shape{s},
          most{std::min(s.n, s.capacity * static_cast<std::size_t>(s.ranks))},
          messages{b, switching<K>{codec}, name, s.n, most},
          results{b, switching<raw>{}, name, s.n, K::lossless || s.ranks == core_of(s.ranks) ? 0 : most},
          arrived{b, s.ranks == 1 ? 0 : most},
          sums{entries<B, R, I>{b, most}, entries<B, R, I>{b, arrived.capacity()}},
          returned{b, K::lossless ? 0 : most} {
      b.template reserve_lists<R, I>(2, most);
    }
    [[nodiscard]] std::size_t result_capacity() const noexcept { return most; }

    exchange_shape shape;
    std::size_t most;  ///< entries in the union
    detail::list_messages<B, R, I, switching<K>> messages;
    detail::list_messages<B, R, I, switching<raw>>
        results;  ///< where a codec would lose some of a result on some ranks
    entries<B, R, I> arrived, sums[2];
    detail::growing_list<B, R, I> returned;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    switching<K> const messages{codec};
    int const core = core_of(s.ranks);
    exchange_cost all;
    auto const pass = [&](int lists, bool merged) {
      std::size_t const size = detail::expected_union(s.capacity, s.n, lists);
      all.messages += 2;  // a count, a list
      all.bytes += static_cast<double>(messages.template bytes<R, I>(size, 0, s.n));
      all.entries += merged ? 2 * static_cast<double>(size) : static_cast<double>(size);
    };
    int const folded = core < s.ranks ? 2 : 1;
    for (int reach = 1; reach < core; reach *= 2) pass(folded * reach, true);
    if (core < s.ranks) {  // a selection comes in, the result goes out
      all.messages += 2;
      all.entries += 2 * static_cast<double>(s.capacity);
      pass(s.ranks, false);
    }
    return all;
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const&, state<R>&, workspace<B, R, I, K>& memory) const {
    using view = entries_view<B, R, I>;
    B& backend = channel.backend();
    switching<K> const messages{codec};
    int const me = memory.shape.rank;
    int const ranks = memory.shape.ranks;
    int const core = core_of(ranks);
    constexpr int nobody = topsum::channel<B, C>::nobody;
    channel.open();
    memory.returned.clear(backend);
    view list = selection;
    std::size_t size = count;
    std::size_t into = 0;
    // What may come: with what is here, no more than all selections together have.
    auto const room = [&] {
      view const all = memory.arrived.view();
      std::size_t const most = memory.most == memory.shape.n ? all.capacity() : memory.most - size;
      return view{all.indices.subspan(0, most), all.values.subspan(0, most), all.count};
    };
    auto const merge = [&](view first, view second) {
      view const both[] = {first, second};
      list = memory.sums[into].view();
      into = 1 - into;
      backend.merge_sum(std::span<view const>{both}, list);
      size = backend.read(list.count);
    };
    auto const keep_loss = [&](bool mine) {
      if constexpr (!K::lossless) {
        if (mine) memory.returned.add(backend, memory.messages.lost());
      }
    };

    if (me >= core) {
      memory.messages.pass(channel, messages, me - core, list, size, nobody, memory.arrived.view());
      keep_loss(true);
    } else if (me + core < ranks) {
      memory.messages.pass(channel, messages, nobody, list, 0, me + core, room());
      merge(list, memory.arrived.view());
    }
    for (int reach = 1; reach < core && me < core; reach *= 2) {
      int const partner = me ^ reach;
      memory.messages.pass(channel, messages, partner, list, size, partner, room());
      view mine = list;
      if constexpr (
          !K::lossless) {  // both sides sum what was sent; of a block's ranks, which are alike, the first keeps the loss
        keep_loss(me % reach == 0);
        mine = memory.messages.sent();
      }
      me < partner ? merge(mine, memory.arrived.view()) : merge(memory.arrived.view(), mine);
    }
    auto const hand_out = [&](auto& by, auto const& with) {
      if (me >= core) {
        by.pass(channel, with, nobody, list, 0, me - core, memory.sums[0].view());
        list = memory.sums[0].view();
      } else if (me + core < ranks) {
        by.pass(channel, with, me + core, list, size, nobody, memory.arrived.view());
      }
    };
    if constexpr (K::lossless) {
      hand_out(memory.messages, messages);
    } else {
      hand_out(memory.results, switching<raw>{});
    }
    exchange_outcome<B, R, I> outcome{list, selection, count, {}};
    if constexpr (!K::lossless) outcome.returned = memory.returned.get();
    return outcome;
  }

 private:
  /// Ranks that double: the largest power of two.
  [[nodiscard]] static int core_of(int ranks) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks))); }
};

}  // namespace topsum

#endif
