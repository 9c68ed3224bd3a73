// SPDX-License-Identifier: BSL-1.0
/// \file
/// What is known of groups that interleave, and bounds of their k-th magnitudes by maxima, for all columns at once.
#ifndef TOPSUM_DETAIL_HOST_GRID_BOUNDS_HPP
#define TOPSUM_DETAIL_HOST_GRID_BOUNDS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rows.hpp>

namespace topsum::detail {

/// Up to so many maxima of each column are ranked for all columns at once.
inline constexpr std::size_t most_ranked = 8;

/// What is known of one group of the block at hand.
template <class R>
struct grid_group {
  std::size_t count;     ///< candidates
  std::size_t end;       ///< behind the group's, among the values by group
  magnitude_cut<R> cut;  ///< where its candidates are cut
  bits_t<R> bound;       ///< from below, of the k-th magnitude
  bits_t<R> least;       ///< smallest magnitude that was kept
  bool over;             ///< it has more than it keeps
  bool was_cut;          ///< while more were to come
};

/// Memory of a grid's selection.
template <class R>
struct grid_memory {
  bits_t<R>* limits;  ///< of each column, and again for a block behind the last
  grid_group<R>* groups;
  std::uint32_t* ids;     ///< of each candidate: its position in the block, then its group
  std::uint32_t* counts;  ///< two of each column, up to whole vectors
  R* by_group;            ///< values of candidates, one group behind the other
  R* maxima;              ///< of a block that is read twice, whole columns
  R* gathered;            ///< the same, in the order of groups, and a block more
};

/// The period of a block's maxima: whole columns, whole vectors, and for each group at least 2k; or the block, if that is less.
/// 0 for a block that is too long to be read twice.
template <class R>
[[nodiscard]] constexpr std::size_t maxima_period(grid const& g, std::size_t k) noexcept {
  if (g.width > stretch || g.height > stretch / g.width) return 0;
  std::size_t const size = (g.height * g.width + block_size<R> - 1) / block_size<R> * block_size<R>;
  std::size_t const unit = std::lcm(g.width, block_size<R>);
  std::size_t const of_group = unit / g.width * g.run;
  return std::min(size, unit * std::max<std::size_t>(1, (2 * k + of_group - 1) / of_group));
}

/// Columns that are ranked together: a vector, so that a few columns take no longer.
template <class R>
inline constexpr std::size_t ranked_lanes = 64 / sizeof(R);

/// `columns` up to whole vectors.
template <class R>
[[nodiscard]] constexpr std::size_t ranked_pitch(std::size_t columns) noexcept {
  return (columns + ranked_lanes<R> - 1) / ranked_lanes<R> * ranked_lanes<R>;
}

/// The k largest of each column of `count` rows, `stride` apart, in order: ranks[j * pitch + c] is the j-th of column c, 0 where
/// there are fewer. All columns at once, without a branch. Values are magnitudes: finite, not negative. Reads `pitch` values of
/// each row; what lies behind the columns gives ranks that mean nothing. `ranks` has room for k + 1 rows.
template <class R>
[[gnu::always_inline]] inline void rank_columns(R const* rows, std::size_t count, std::size_t stride, std::size_t pitch,
                                                std::size_t k, R* ranks) noexcept {
  std::fill_n(ranks, k * pitch, R{0});
  R* const falling = ranks + k * pitch;
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t c = 0; c < pitch; ++c) falling[c] = rows[r * stride + c];
    for (std::size_t j = 0; j < k; ++j) {
      R* const rank = ranks + j * pitch;
      for (std::size_t c = 0; c < pitch; ++c) {
        R const a = rank[c];
        R const b = falling[c];
        rank[c] = a > b ? a : b;
        falling[c] = a > b ? b : a;
      }
    }
  }
}

/// Bounds from below of the k-th magnitude of each group, by `period` maxima: at least k of a group's elements reach its bound.
template <class Ops, class R>
[[gnu::always_inline]] inline void bound_groups(grid const& g, std::size_t k, std::size_t period,
                                                grid_memory<R> const& memory) noexcept {
  R* const most = memory.maxima;
  auto const larger = [](R a, R b) { return a > b ? a : b; };  // magnitudes: finite, not negative
  while (period % 2 == 0 && period / 2 % g.width == 0 && period / 2 / g.width * g.run >= 2 * k) {
    period /= 2;
    for (std::size_t i = 0; i < period; ++i) most[i] = larger(most[i], most[i + period]);
  }
  std::size_t const groups = groups_of_block(g);
  std::size_t const rows = (period + g.width - 1) / g.width;
  std::fill(most + period, most + rows * g.width, R{0});
  if (g.run == 1 && k <= most_ranked) {  // all columns at once: the k largest of each, in order
    R* const first = memory.gathered;
    std::size_t const pitch = ranked_pitch<R>(g.width);
    rank_columns(most, rows, g.width, pitch, k, first);
    for (std::size_t c = 0; c < groups; ++c) memory.groups[c].bound = magnitude(first[(k - 1) * pitch + c]);
    return;
  }
  bits_t<R> guess = magnitude(R{1});
  for (std::size_t q = 0; q < groups; ++q) {
    std::size_t const column = q * g.run;
    std::size_t const breadth = std::min(g.run, g.width - column);
    std::size_t used = 0;
    for (std::size_t r = 0; r < rows; ++r, used += breadth) {
      std::copy_n(most + r * g.width + column, breadth, memory.gathered + used);
    }
    memory.groups[q].bound = used < k ? 0 : bound_of<Ops>(memory.gathered, used, k, guess);
    guess = memory.groups[q].bound;
  }
}

}  // namespace topsum::detail

#endif
