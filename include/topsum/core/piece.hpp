// SPDX-License-Identifier: BSL-1.0
/// \file
/// A scope cuts the gradient into pieces; a rule chooses entries in each.
#ifndef TOPSUM_CORE_PIECE_HPP
#define TOPSUM_CORE_PIECE_HPP

#include <cstddef>
#include <span>

namespace topsum {

/// A run of the gradient to which a rule is applied on its own.
struct piece {
  std::size_t begin = 0;     ///< first position
  std::size_t size = 0;      ///< number of values
  std::size_t count = 0;     ///< k: entries that the rule aims at, at most `size`
  std::size_t capacity = 0;  ///< `.at_most`: entries that may travel; what is over is cut by magnitude

  friend bool operator==(piece const&, piece const&) = default;
};

/// Entries that may travel from all pieces together: the size of a selection's memory, and a re-selecting exchange's k.
[[nodiscard]] constexpr std::size_t total_capacity(std::span<piece const> pieces) noexcept {
  std::size_t sum = 0;
  for (piece const& p : pieces) sum += p.capacity;
  return sum;
}

}  // namespace topsum

#endif
