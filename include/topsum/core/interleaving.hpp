// SPDX-License-Identifier: BSL-1.0
/// \file
/// A fixed partition of [0, n) among owners, in small blocks that are dealt out in turn.
#ifndef TOPSUM_CORE_INTERLEAVING_HPP
#define TOPSUM_CORE_INTERLEAVING_HPP

#include <algorithm>
#include <cstddef>

namespace topsum {

/// Block b of `block` values belongs to owner (b + b / owners) mod owners: in each round of `owners` blocks every owner has one, at
/// another turn than in the round before, so that no owner gets the same columns of every row. With `block` = ceil(n / owners) the
/// regions are contiguous. An owner's coordinates have *places* 0, 1, 2, ... in the order of their positions.
struct interleaving {
  std::size_t n = 0;
  std::size_t owners = 1;  ///< at least 1
  std::size_t block = 1;   ///< at least 1

  /// Whether every owner has a single run of coordinates.
  [[nodiscard]] constexpr bool is_contiguous() const noexcept {
    return owners == 1 || (n + block - 1) / block <= owners;
  }

  [[nodiscard]] constexpr std::size_t owner_of(std::size_t position) const noexcept {
    std::size_t const b = position / block;
    return (b % owners + b / owners) % owners;
  }
  /// Place of a position among its owner's.
  [[nodiscard]] constexpr std::size_t place_of(std::size_t position) const noexcept {
    return position / block / owners * block + position % block;
  }
  /// Position of an owner's place, which is below `size_of(owner)`.
  [[nodiscard]] constexpr std::size_t position_of(std::size_t owner, std::size_t place) const noexcept {
    std::size_t const round = place / block;
    return (round * owners + turn(owner, round)) * block + place % block;
  }
  /// Coordinates of an owner.
  [[nodiscard]] constexpr std::size_t size_of(std::size_t owner) const noexcept {
    std::size_t const round = n / block / owners;  // the last, which is cut short
    std::size_t const left = n - round * owners * block;
    std::size_t const before = turn(owner, round) * block;
    return round * block + (left <= before ? 0 : std::min(left - before, block));
  }
  /// The largest of them.
  [[nodiscard]] constexpr std::size_t largest() const noexcept {
    std::size_t most = 0;
    for (std::size_t owner = 0; owner < owners; ++owner) most = std::max(most, size_of(owner));
    return most;
  }

  friend bool operator==(interleaving const&, interleaving const&) = default;

 private:
  /// Which block of a round is an owner's.
  [[nodiscard]] constexpr std::size_t turn(std::size_t owner, std::size_t round) const noexcept {
    return (owner + owners - round % owners) % owners;
  }
};

/// How many entries each owner is sent: `each`, or all of its coordinates where it has fewer.
struct quotas {
  interleaving where{};
  std::size_t each = 0;

  [[nodiscard]] constexpr std::size_t of(std::size_t owner) const noexcept {
    return std::min(each, where.size_of(owner));
  }
  [[nodiscard]] constexpr std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (std::size_t owner = 0; owner < where.owners; ++owner) sum += of(owner);
    return sum;
  }
};

}  // namespace topsum

#endif
