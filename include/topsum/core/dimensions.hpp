// SPDX-License-Identifier: BSL-1.0
/// \file
/// The dimensions of a tensor: rows of a matrix that it is seen as.
#ifndef TOPSUM_CORE_DIMENSIONS_HPP
#define TOPSUM_CORE_DIMENSIONS_HPP

#include <cstddef>
#include <vector>

#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/layout.hpp>

namespace topsum {

/// Which elements of a tensor form a row. Extents count from the outermost.
enum class axis : unsigned char {
  second,  ///< along the second extent: Linear [out, in] has `out` rows of `in`, Conv [out, in, kh, kw] out*kh*kw rows of `in`
  first,       ///< along the first: an embedding [words, width] has `width` rows of `words`
  longest,     ///< along the longest; the second, then the outermost, where several are
  out_channel  ///< all that belongs to one index of the first extent: Conv has `out` rows of in*kh*kw
};

/// The rows of a tensor of `size` > 0 values; {} where it has fewer than two extents, and so no rows.
[[nodiscard]] inline grid rows_of(extents const& shape, std::size_t size, axis along) {
  auto const& e = shape.values();
  if (e.size() < 2) return {};
  if (along == axis::out_channel) return {1, size, size / static_cast<std::size_t>(e[0])};
  std::size_t a = along == axis::first ? 0 : 1;
  if (along == axis::longest) {
    for (std::size_t i = 0; i < e.size(); ++i) a = e[i] > e[a] ? i : a;
  }
  auto const length = static_cast<std::size_t>(e[a]);
  std::size_t stride = 1;
  for (std::size_t i = a + 1; i < e.size(); ++i) stride *= static_cast<std::size_t>(e[i]);
  return stride == 1 ? grid{1, size, length} : grid{length, stride, 1};
}

/// One piece for each tensor that has rows, its groups the rows, to be counted; nothing is to be selected from them.
[[nodiscard]] inline std::vector<piece> all_rows(layout const& shapes, axis along) {
  std::vector<piece> each;
  for (std::size_t t = 0; t < shapes.tensors().size(); ++t) {
    std::size_t const size = shapes.offset(t + 1) - shapes.offset(t);
    grid const rows = size == 0 ? grid{} : rows_of(shapes.tensors()[t].shape, size, along);
    if (rows != grid{}) each.push_back({shapes.offset(t), size, 0, 0, rows});
  }
  return each;
}

/// Keyword: the report says which share of the gradient's rows had entries in a step: all rows of all tensors with two extents or
/// more, seen along `along`. One minus that is ADTopk's rate of missing dimensions. Local: ranks may differ in it. Costs O(k) a
/// step, and a number a row of memory; not for `dense`, where every row has entries.
struct row_coverage {
  using stage_tag = coverage_tag;
  axis along = axis::second;
};

}  // namespace topsum

#endif
