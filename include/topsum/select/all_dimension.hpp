// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: each row of each tensor is a group.
#ifndef TOPSUM_SELECT_ALL_DIMENSION_HPP
#define TOPSUM_SELECT_ALL_DIMENSION_HPP

#include <cstddef>
#include <string_view>
#include <vector>

#include <topsum/core/dimensions.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/scope.hpp>

namespace topsum {

/// Options of `all_dimension`.
struct all_dimension_options {
  axis along = axis::second;
};

/// Scope: the rule is applied to each row of each tensor on its own, so that no dimension of the gradient goes missing.
///
/// A row has one setting of all other extents (see `axis`); all rows select independently. With `top_k` every row of L values
/// sends k = clamp(floor(density * L), 1, L) entries. Dense, that is with k = size, are tensors of one extent, rows of one
/// value, and tensors where 2k >= L. At least one entry a row: on tensors of short rows the density sent is above the density
/// asked for; `report::effective_density` tells. Strided rows (a convolution's) are interleaved: indices increase all the same.
/// Source: ADTopk (Ming et al., HPDC'24, section 3). Cost: one pass; `piece::grid` tells codecs the rows.
/// Under a re-selecting exchange the promise per row ends at the owner: see docs/exchanges.md. Prefer `global` where magnitudes
/// of rows may be compared.
template <class Rule>
struct all_dimension : scope<Rule> {
  static constexpr std::string_view name = "all_dimension";

  all_dimension_options options{};

  constexpr explicit all_dimension(Rule of = {}, all_dimension_options chosen = {})
      : scope<Rule>{of}, options{chosen} {}

  /// One piece a tensor.
  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const {
    std::vector<piece> each;
    each.reserve(shapes.tensors().size());
    for (std::size_t t = 0; t < shapes.tensors().size(); ++t) {
      std::size_t const size = shapes.offset(t + 1) - shapes.offset(t);
      grid const rows = size == 0 ? grid{} : rows_of(shapes.tensors()[t].shape, size, options.along);
      std::size_t const length = rows.height * rows.run;
      piece const cut = this->cut_piece(shapes.offset(t), size, rows, length);
      bool const dense = length <= 1 || 2 * cut.count >= length;
      each.push_back(dense ? piece{shapes.offset(t), size, size, size} : cut);
    }
    return each;
  }

  void describe(description& out) const {
    out.open(name);
    out("rule", this->rule);
    out("along", options.along);
    out.close();
  }
};

}  // namespace topsum

#endif
