// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: the whole gradient is one piece.
#ifndef TOPSUM_SELECT_GLOBAL_HPP
#define TOPSUM_SELECT_GLOBAL_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/layout.hpp>

namespace topsum {

/// Scope: the rule sees the whole gradient as one piece, so that the entries go where the magnitudes are.
///
/// The scope of Ok-Topk and of most Top-k systems; a rule given to `plan_allreduce` alone means `global{rule}`.
/// Prefer `layer_wise` where tensors differ so much in scale that some would never send.
template <class Rule>
struct global {
  using stage_tag = selection_tag;
  static constexpr std::string_view name = "global";
  static constexpr bool fixed_count = Rule::fixed_count;

  Rule rule{};

  template <class B, class R>
  using state = typename Rule::template state<B, R>;

  void validate() const { rule.validate(); }

  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const {
    return {piece{0, shapes.size(), rule.count(shapes.size()), rule.capacity(shapes.size())}};
  }

  template <class B, class Source, class State, class R, class I>
    requires selection_rule<Rule, B, typename Source::gradient_type, I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step, State const& before,
              State& after, entries_view<B, R, I> out) const {
    rule.select(backend, from, pieces, step, before, after, out);
  }

  void describe(description& out) const {
    out.open(name);
    out("rule", rule);
    out.close();
  }
};

template <class Rule>
global(Rule) -> global<Rule>;

}  // namespace topsum

#endif
