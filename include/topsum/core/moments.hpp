// SPDX-License-Identifier: BSL-1.0
/// \file
/// What estimates of a threshold are made from: sums over the elements of a group that reach a magnitude.
#ifndef TOPSUM_CORE_MOMENTS_HPP
#define TOPSUM_CORE_MOMENTS_HPP

#include <bit>
#include <cstddef>
#include <cstdint>

namespace topsum {

/// Sums over some elements x of a group; all zero (the product 1) where there are none. Sums of doubles may overflow.
///
/// How they are summed, so that every backend and vector width agrees bit for bit: a group's elements, in order, fall into blocks
/// of `block`; element i of a block goes to lane i mod `lanes`; a lane adds in order; lane l then takes in lane l + 16, and so on
/// by halves; blocks are added in order. The product of all magnitudes goes the same way, mantissa and exponent each on its own:
/// it gives the mean of log|x| for one logarithm a group.
struct moments {
  static constexpr std::size_t block = 4096;
  static constexpr std::size_t lanes = 32;

  std::uint64_t count = 0;
  double sum = 0;            ///< of x
  double sum_magnitude = 0;  ///< of |x|
  double sum_squares = 0;    ///< of x^2
  double mantissa = 1;       ///< in [1, 2): the product of all |x| is mantissa * 2^exponent
  std::int64_t exponent = 0;
  double largest = 0;  ///< of |x|

  friend bool operator==(moments const&, moments const&) = default;
};

/// x > 0, normal, as mantissa in [1, 2) and exponent.
struct split_number {
  double mantissa;
  std::int64_t exponent;
};

/// Mantissa and exponent of a normal x > 0, exactly.
[[nodiscard]] constexpr split_number split(double x) noexcept {
  auto const bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t below = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t one = std::uint64_t{1023} << 52;
  return {std::bit_cast<double>((bits & below) | one), static_cast<std::int64_t>(bits >> 52) - 1023};
}

}  // namespace topsum

#endif
