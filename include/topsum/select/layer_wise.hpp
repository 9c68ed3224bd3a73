// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: each tensor is a piece.
#ifndef TOPSUM_SELECT_LAYER_WISE_HPP
#define TOPSUM_SELECT_LAYER_WISE_HPP

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

/// Scope: the rule is applied to each tensor on its own, each with its own k; a tensor of any size sends at least one entry.
///
/// As DGC (Lin et al., ICLR'18) and most framework integrations do. A count `.k` in the rule is meant per tensor.
/// Under a re-selecting exchange (`ok_topk`) the promise per tensor ends at the owner: see docs/exchanges.md.
template <class Rule>
struct layer_wise {
  using stage_tag = selection_tag;
  static constexpr std::string_view name = "layer_wise";
  static constexpr bool fixed_count = Rule::fixed_count;

  Rule rule{};

  template <class B, class R>
  using state = typename Rule::template state<B, R>;

  void validate() const { rule.validate(); }

  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const {
    std::vector<piece> each;
    each.reserve(shapes.tensors().size());
    for (std::size_t t = 0; t < shapes.tensors().size(); ++t) {
      std::size_t const size = shapes.offset(t + 1) - shapes.offset(t);
      each.push_back(piece{shapes.offset(t), size, rule.count(size), rule.capacity(size)});
    }
    return each;
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
layer_wise(Rule) -> layer_wise<Rule>;

}  // namespace topsum

#endif
