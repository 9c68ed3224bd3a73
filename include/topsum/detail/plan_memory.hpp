// SPDX-License-Identifier: BSL-1.0
/// \file
/// What a plan owns beside its stages: all memory of a step, allocated when the plan is made.
#ifndef TOPSUM_DETAIL_PLAN_MEMORY_HPP
#define TOPSUM_DETAIL_PLAN_MEMORY_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/core/dimensions.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/partition.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum::detail {

/// What a plan of exchange `X` talks over: an exchange made of others asks for parts of the ranks.
template <class X, class C>
using transport_for = typename std::conditional_t<requires { requires X::narrows; }, std::type_identity<subgroups<C>>,
                                                  std::type_identity<C>>::type;

/// Where on_nonfinite::propagate puts NaN: at most one position a rank.
template <class B, class R, class I>
struct nonfinite_marks {
  nonfinite_marks(B& b, int ranks)
      : list{b, static_cast<std::size_t>(ranks)}, positions(static_cast<std::size_t>(ranks)) {}
  entries<B, R, I> list;
  std::vector<I> positions;  // the same on the host, while they are put in order
};

/// The rows of a layout, and marks to count those that have entries.
template <class B>
struct coverage_memory {
  coverage_memory() = default;
  coverage_memory(B& b, layout const& shapes, axis along)
      : rows{all_rows(shapes, along)},
        total{total_groups(rows)},
        marks{b.template allocate<std::uint32_t>(total)},
        count{b.template allocate<std::size_t>(1)} {}

  /// Share of the rows that have an entry in the list; 1 where there are no rows.
  template <class R, class I>
  [[nodiscard]] double share(B& b, entries_view<B, R, I> const& list) {
    b.count_groups(list, rows, marks.view(), count.view());
    return total == 0 ? 1 : static_cast<double>(b.read(count.view())) / static_cast<double>(total);
  }

  std::vector<piece> rows;
  std::size_t total = 0;
  typename B::template buffer<std::uint32_t> marks;
  typename B::template buffer<std::size_t> count;
};

/// What a plan of a sparse exchange owns.
template <class B, class T, class I, class S, class E, class K, class X>
struct sparse_memory {
  using R = wide_t<T>;
  sparse_memory(B& b, partition const& pieces, exchange_shape const& s, E const& residual_stage, K const& codec,
                X const& exchange)
      : fault{b.template allocate<nonfinite_record>(1)},
        residual{b, s.n, residual_stage},
        selection_before{b, pieces},
        selection_after{b, pieces},
        selected{b, pieces.room},
        exchange_before{new_exchange_state<decltype(exchange_before)>(s, exchange)},
        exchange_after{new_exchange_state<decltype(exchange_after)>(s, exchange)},
        workspace{b, codec, s, exchange},
        marks{b, s.ranks},
        marked{b, 0} {
    pieces.for_each_list([&b](std::span<piece const> list) { b.template reserve_selection<R, I>(list); });
  }
  typename B::template buffer<nonfinite_record> fault;
  typename E::template state<B, T> residual;
  typename S::template state<B, R> selection_before, selection_after;
  entries<B, R, I> selected;
  typename X::template state<R> exchange_before, exchange_after;
  typename X::template workspace<B, R, I, K> workspace;
  nonfinite_marks<B, R, I> marks;
  entries<B, R, I> marked;  // the result with those marks
};

/// What a plan of `dense` owns.
template <class B, class T, class I, class E, class X, class Channel>
struct dense_memory {
  using R = wide_t<T>;
  dense_memory(B& b, exchange_shape const& s, E const& residual_stage)
      : fault{b.template allocate<nonfinite_record>(1)},
        residual{b, s.n, residual_stage},
        wide{b.template allocate<R>(std::is_same_v<R, T> ? 0 : s.n)},
        workspace{b, s},
        marks{b, s.ranks} {}
  typename B::template buffer<nonfinite_record> fault;
  typename E::template state<B, T> residual;
  typename B::template buffer<R> wide;
  typename X::template workspace<Channel, R> workspace;
  nonfinite_marks<B, R, I> marks;
};

/// States that a load makes before it is known whether they will be used. None under `dense`.
template <class Memory>
struct loaded_states {};

template <class B, class T, class I, class S, class E, class K, class X>
struct loaded_states<sparse_memory<B, T, I, S, E, K, X>> {
  using memory_type = sparse_memory<B, T, I, S, E, K, X>;
  void make(B& b, partition const& pieces, exchange_shape const& s, X const& stage) {
    selection.emplace(b, pieces);
    exchange.emplace(new_exchange_state<decltype(memory_type::exchange_before)>(s, stage));
  }
  void move_into(memory_type& memory) {
    memory.selection_before = std::move(*selection);
    memory.exchange_before = std::move(*exchange);
  }
  std::optional<decltype(memory_type::selection_before)> selection;
  std::optional<decltype(memory_type::exchange_before)> exchange;
};

}  // namespace topsum::detail

#endif
