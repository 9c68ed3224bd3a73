// SPDX-License-Identifier: BSL-1.0
/// \file
/// A scope cuts the gradient into pieces, and pieces into groups; a rule chooses entries in each group.
#ifndef TOPSUM_CORE_PIECE_HPP
#define TOPSUM_CORE_PIECE_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

namespace topsum {

/// How a piece is cut: into blocks of `height` x `width` values, one behind the other, and a block into groups of `run`
/// neighbouring columns. The last group of a block has the columns that are left. `{}`: the piece is one group.
///
///     {1, size, length}    rows of `length` values, the last one shorter where it does not divide
///     {length, stride, 1}  rows whose elements lie `stride` apart, as those of a convolution's input channels do
///     {64, columns, 64}    tiles of 64 x 64 of a matrix of so many columns
struct grid {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t run = 0;

  friend bool operator==(grid const&, grid const&) = default;
};

/// A run of the gradient, to each group of which a rule is applied on its own. `count` and `capacity` are those of one group;
/// a group that has fewer values than that has as many as it has values.
struct piece {
  std::size_t begin = 0;     ///< first position
  std::size_t size = 0;      ///< number of values: whole blocks
  std::size_t count = 0;     ///< k: entries that the rule aims at in a group, at most a group's size
  std::size_t capacity = 0;  ///< `.at_most`: entries that may travel from a group; what is over is cut by magnitude
  topsum::grid grid{};

  friend bool operator==(piece const&, piece const&) = default;
};

/// A group's values: `height` runs of `breadth`, `stride` apart. Positions increase from run to run.
struct group {
  std::size_t first;
  std::size_t height;
  std::size_t breadth;
  std::size_t stride;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return height * breadth; }
  /// Position of element i < size(), counted along the runs.
  [[nodiscard]] constexpr std::size_t position(std::size_t i) const noexcept {
    return first + i / breadth * stride + i % breadth;
  }
};

/// The grid with its meaning spelled out: one block for `{}`.
[[nodiscard]] constexpr grid grid_of(piece const& p) noexcept {
  return p.grid.height == 0 ? grid{1, p.size, p.size} : p.grid;
}

/// Whether the piece is one group.
[[nodiscard]] constexpr bool is_whole(piece const& p) noexcept { return p.grid.height == 0; }

/// Whether size, grid, count and capacity fit together. A piece of no values has no groups, unless it is whole.
[[nodiscard]] constexpr bool is_well_formed(piece const& p) noexcept {
  if (is_whole(p)) return p.grid == grid{} && p.count <= p.size && p.capacity <= p.size;
  grid const g = p.grid;
  if (g.width == 0 || g.run == 0 || g.run > g.width || g.width > p.size / g.height) return p.size == 0;
  return p.size % (g.height * g.width) == 0 && p.count <= g.height * g.run && p.capacity <= g.height * g.run;
}

/// Groups in a block.
[[nodiscard]] constexpr std::size_t groups_of_block(grid const& g) noexcept { return (g.width + g.run - 1) / g.run; }

/// Groups in a piece; 1 for a whole one, even of no values.
[[nodiscard]] constexpr std::size_t group_count(piece const& p) noexcept {
  if (is_whole(p)) return 1;
  return p.size == 0 ? 0 : p.size / (p.grid.height * p.grid.width) * groups_of_block(p.grid);
}

/// Group `index` < group_count(p), in the order of their first positions.
[[nodiscard]] constexpr group group_at(piece const& p, std::size_t index) noexcept {
  if (is_whole(p)) return {p.begin, 1, p.size, p.size};
  grid const g = p.grid;
  std::size_t const per_block = groups_of_block(g);
  std::size_t const column = index % per_block * g.run;
  return {p.begin + index / per_block * (g.height * g.width) + column, g.height, std::min(g.run, g.width - column),
          g.width};
}

/// The group that holds a position of the piece.
[[nodiscard]] constexpr std::size_t group_of(piece const& p, std::size_t position) noexcept {
  if (is_whole(p)) return 0;
  grid const g = p.grid;
  std::size_t const at = position - p.begin;
  return at / (g.height * g.width) * groups_of_block(g) + at % g.width / g.run;
}

/// Where in its group a position of the piece lies, counted along the group's runs: what a codec has to tell when the group is
/// known. Below `group_at(p, group_of(p, position)).size()`.
[[nodiscard]] constexpr std::size_t place_in_group(piece const& p, std::size_t position) noexcept {
  std::size_t const at = position - p.begin;
  if (is_whole(p)) return at;
  grid const g = p.grid;
  std::size_t const column = at % g.width;
  return at % (g.height * g.width) / g.width * std::min(g.run, g.width - column / g.run * g.run) + column % g.run;
}

/// Bits that tell any place in a group of the piece: ceil(log2(its largest group's size)).
[[nodiscard]] constexpr int place_bits(piece const& p) noexcept {
  std::size_t const largest = group_count(p) == 0 ? 0 : group_at(p, 0).size();
  return largest <= 1 ? 0 : static_cast<int>(std::bit_width(largest - 1));
}

/// The sum over a piece's groups of `most`, or of a group's size where that is less.
[[nodiscard]] constexpr std::size_t sum_over_groups(piece const& p, std::size_t most) noexcept {
  if (is_whole(p)) return std::min(most, p.size);
  if (p.size == 0) return 0;
  grid const g = p.grid;
  std::size_t const full = groups_of_block(g) - 1;
  std::size_t const last = g.height * (g.width - full * g.run);
  return p.size / (g.height * g.width) * (full * std::min(most, g.height * g.run) + std::min(most, last));
}

/// Groups in all pieces: the length of what a rule keeps for each group.
[[nodiscard]] constexpr std::size_t total_groups(std::span<piece const> pieces) noexcept {
  std::size_t sum = 0;
  for (piece const& p : pieces) sum += group_count(p);
  return sum;
}

/// Entries that may travel from all pieces together: the size of a selection's memory, and a re-selecting exchange's k.
[[nodiscard]] constexpr std::size_t total_capacity(std::span<piece const> pieces) noexcept {
  std::size_t sum = 0;
  for (piece const& p : pieces) sum += sum_over_groups(p, p.capacity);
  return sum;
}

}  // namespace topsum

#endif
