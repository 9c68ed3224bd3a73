// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: each tensor is a piece.
#ifndef TOPSUM_SELECT_LAYER_WISE_HPP
#define TOPSUM_SELECT_LAYER_WISE_HPP

#include <cstddef>
#include <string_view>
#include <vector>

#include <topsum/core/piece.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/scope.hpp>

namespace topsum {

/// Scope: the rule is applied to each tensor on its own, each with its own k; a tensor of any size sends at least one entry.
///
/// As DGC (Lin et al., ICLR'18) and most framework integrations do. A count `.k` in the rule is meant per tensor.
/// Under a re-selecting exchange (`ok_topk`) the promise per tensor ends at the owner: see docs/exchanges.md.
template <class Rule>
struct layer_wise : scope<Rule> {
  static constexpr std::string_view name = "layer_wise";

  constexpr explicit layer_wise(Rule of = {}) : scope<Rule>{of} {}

  /// One piece a tensor.
  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const {
    std::vector<piece> each;
    each.reserve(shapes.tensors().size());
    for (std::size_t t = 0; t < shapes.tensors().size(); ++t)
      each.push_back(this->whole_piece(shapes.offset(t), shapes.offset(t + 1) - shapes.offset(t)));
    return each;
  }
};

}  // namespace topsum

#endif
