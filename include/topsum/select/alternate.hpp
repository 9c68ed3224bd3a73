// SPDX-License-Identifier: BSL-1.0
/// \file
/// Selection policy: two policies in turn.
#ifndef TOPSUM_SELECT_ALTERNATE_HPP
#define TOPSUM_SELECT_ALTERNATE_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/partition.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/detail/copy_state.hpp>
#include <topsum/detail/keywords.hpp>
#include <topsum/layout.hpp>

namespace topsum {

/// Selection policy: `first` in even steps, `second` in odd ones. A rule alone means `global{rule}`.
///
///     topsum::alternate{topsum::all_dimension{topsum::top_k{}}, topsum::global{topsum::top_k{}}}
///
/// Each policy counts its own steps, 0, 1, 2, ..., so that a rule which refreshes every 32 steps does so every 64 of the plan; its
/// state sleeps while the other selects (copied: O(its size)). The step is saved with the plan, so all ranks take turns alike.
/// The plan's k, and its memory, are those of the policy that may send more. Cost: one pass, that of the policy whose turn it is.
/// Source: ADTopk (Ming et al., HPDC'24) interleaves so; `adtopk` is its complete scheme.
template <class First, class Second>
struct alternate {
  using stage_tag = selection_tag;
  static constexpr std::string_view name = "alternate";
  static constexpr bool fixed_count = false;

  First first{};
  Second second{};

  constexpr alternate() = default;
  template <class Even, class Odd>
  constexpr alternate(Even const& even, Odd const& odd)
      : first{detail::as_stage(even)}, second{detail::as_stage(odd)} {}

  /// What both policies keep.
  template <class B, class R>
  struct state {
    state(B& backend, partition const& pieces) : first{backend, pieces.parts[0]}, second{backend, pieces.parts[1]} {}
    template <class V>
    void visit(V& visitor) {
      visitor("first", first);
      visitor("second", second);
    }
    typename First::template state<B, R> first;
    typename Second::template state<B, R> second;
  };

  void validate() const {
    first.validate();
    second.validate();
  }

  /// Two parts.
  [[nodiscard]] partition pieces(layout const& shapes) const {
    return partition{std::vector<partition>{first.pieces(shapes), second.pieces(shapes)}};
  }

  template <class B, class Source, class State, class R, class I>
    requires selection_policy<First, B, typename Source::gradient_type, I> &&
             selection_policy<Second, B, typename Source::gradient_type, I>
  void select(B& backend, Source const& from, partition const& pieces, std::uint64_t step, State const& before,
              State& after, entries_view<B, R, I> out) const {
    if (step % 2 == 0) {
      detail::copy_state(backend, before.second, after.second);
      first.select(backend, from, pieces.parts[0], step / 2, before.first, after.first, out);
    } else {
      detail::copy_state(backend, before.first, after.first);
      second.select(backend, from, pieces.parts[1], step / 2, before.second, after.second, out);
    }
  }

  /// The policy whose turn it was may learn from the result.
  template <class B, class R, class I, class State>
    requires observing_policy<First, B, R, I> || observing_policy<Second, B, R, I>
  void observe(B& backend, entries_view<B, R, I> result, partition const& pieces, std::uint64_t step,
               State& after) const {
    if (step % 2 == 0) {
      if constexpr (observing_policy<First, B, R, I>)
        first.observe(backend, result, pieces.parts[0], step / 2, after.first);
    } else {
      if constexpr (observing_policy<Second, B, R, I>)
        second.observe(backend, result, pieces.parts[1], step / 2, after.second);
    }
  }

  void describe(description& out) const {
    out.open(name);
    out("first", first);
    out("second", second);
    out.close();
  }
};

template <class First, class Second>
alternate(First, Second) -> alternate<detail::as_stage_t<First>, detail::as_stage_t<Second>>;

}  // namespace topsum

#endif
