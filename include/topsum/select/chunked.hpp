// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: each tensor is cut in chunks of one size, and each chunk is a group.
#ifndef TOPSUM_SELECT_CHUNKED_HPP
#define TOPSUM_SELECT_CHUNKED_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/error.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/scope.hpp>

namespace topsum {

/// What to do where an extent is not a multiple of a chunk's.
enum class chunk_fit : unsigned char {
  largest_divisor,  ///< the chunk's extent is the largest divisor up to the one given; 1 where the extent is a larger prime
  pad_last          ///< the last chunk is smaller, as if it were padded with zeros that are never sent
};

namespace detail {

/// What a chunk of up to `wanted` measures along an extent, both at least 1.
[[nodiscard]] constexpr std::size_t chunk_extent(std::size_t extent, std::size_t wanted, chunk_fit fit) noexcept {
  std::size_t chunk = std::min(extent, wanted);
  if (fit == chunk_fit::largest_divisor) {
    while (extent % chunk != 0) --chunk;
  }
  return chunk;
}

}  // namespace detail

/// Chunks of `height` x `width` of a tensor seen as a matrix, its first extent by all others. A tensor of one extent is one row.
struct tiles {
  static constexpr std::string_view name = "tiles";
  std::size_t height = 64;  ///< at least 1
  std::size_t width = 64;   ///< at least 1
  chunk_fit fit = chunk_fit::largest_divisor;

  void validate() const {
    if (height == 0 || width == 0) throw error{errc::bad_argument, "tiles: .height and .width are at least 1"};
  }

  /// Calls `cut(first, size, grid, largest chunk)` for each part of a tensor of `size` > 0 values.
  template <class Cut>
  void cut_tensor(extents const& shape, std::size_t size, Cut const& cut) const {
    auto const& e = shape.values();
    std::size_t const rows = e.size() < 2 ? 1 : static_cast<std::size_t>(e[0]);
    std::size_t const columns = size / rows;
    std::size_t const h = detail::chunk_extent(rows, height, fit);
    std::size_t const w = detail::chunk_extent(columns, width, fit);
    std::size_t const whole = rows / h * h;
    cut(0, whole * columns, grid{h, columns, w}, h * w);
    std::size_t const left = rows - whole;
    if (left != 0) cut(whole * columns, left * columns, grid{left, columns, w}, left * w);
  }

  void describe(description& out) const {
    out.open(name);
    out("height", height);
    out("width", width);
    out("fit", fit);
    out.close();
  }
};

/// Chunks of `length` neighbouring values of a tensor.
struct runs {
  static constexpr std::string_view name = "runs";
  std::size_t length = 4096;  ///< at least 1
  chunk_fit fit = chunk_fit::pad_last;

  void validate() const {
    if (length == 0) throw error{errc::bad_argument, "runs: .length is at least 1"};
  }

  /// As in `tiles`.
  template <class Cut>
  void cut_tensor(extents const&, std::size_t size, Cut const& cut) const {
    std::size_t const run = detail::chunk_extent(size, length, fit);
    cut(0, size, grid{1, size, run}, run);
  }

  void describe(description& out) const {
    out.open(name);
    out("length", length);
    out("fit", fit);
    out.close();
  }
};

/// Scope: the rule is applied to each chunk of each tensor on its own; a count `.k` in the rule is meant per chunk.
///
/// `chunked{top_k{.k = 32}}` are DeMo's tiles of 64 x 64 (Peng et al., arXiv 2411.19870; without its transform),
/// `chunked{top_k{.k = 32}, runs{}}` SparseLoCo's runs of 4096 values (arXiv 2508.15706). Cost: one pass; `piece::grid` tells
/// codecs the chunks, in which an index takes 12 bits. Prefer `global` where large entries may crowd together.
template <class Rule, class Shape = tiles>
struct chunked : scope<Rule> {
  static constexpr std::string_view name = "chunked";

  Shape chunks{};

  constexpr explicit chunked(Rule of = {}, Shape shape = {}) : scope<Rule>{of}, chunks{shape} {}

  void validate() const {
    this->rule.validate();
    chunks.validate();
  }

  /// One or two pieces a tensor.
  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const {
    std::vector<piece> each;
    for (std::size_t t = 0; t < shapes.tensors().size(); ++t) {
      std::size_t const begin = shapes.offset(t);
      std::size_t const size = shapes.offset(t + 1) - begin;
      if (size == 0) continue;
      chunks.cut_tensor(shapes.tensors()[t].shape, size,
                        [&](std::size_t first, std::size_t part, grid const& cut, std::size_t largest) {
                          each.push_back(this->cut_piece(begin + first, part, cut, largest));
                        });
    }
    return each;
  }

  void describe(description& out) const {
    out.open(name);
    out("rule", this->rule);
    out("chunks", chunks);
    out.close();
  }
};

}  // namespace topsum

#endif
