// SPDX-License-Identifier: BSL-1.0
/// \file
/// What all scopes share: a rule, which is handed the scope's pieces.
#ifndef TOPSUM_SELECT_SCOPE_HPP
#define TOPSUM_SELECT_SCOPE_HPP

#include <cstddef>
#include <cstdint>
#include <span>

#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Base of a scope: derive from it, give a `name` and `pieces(layout)`, and the scope is a selection policy.
/// One with options of its own lists them in `describe`, else ranks do not find out that they differ.
template <class Rule>
struct scope {
  using stage_tag = selection_tag;
  static constexpr bool fixed_count = Rule::fixed_count;

  Rule rule{};

  /// What the rule keeps between steps.
  template <class B, class R>
  using state = typename Rule::template state<B, R>;

  void validate() const { rule.validate(); }

  /// The rule's selection from the scope's pieces.
  template <class B, class Source, class State, class R, class I>
    requires selection_rule<Rule, B, typename Source::gradient_type, I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step, State const& before,
              State& after, entries_view<B, R, I> out) const {
    rule.select(backend, from, pieces, step, before, after, out);
  }

 protected:
  /// The run [begin, begin + size), cut by `cut`, whose largest group has `group` values: k and capacity are the rule's for that.
  [[nodiscard]] piece cut_piece(std::size_t begin, std::size_t size, topsum::grid cut, std::size_t group) const {
    return {begin, size, rule.count(group), rule.capacity(group), cut};
  }
  /// The run as one group.
  [[nodiscard]] piece whole_piece(std::size_t begin, std::size_t size) const {
    return cut_piece(begin, size, {}, size);
  }
};

}  // namespace topsum

#endif
