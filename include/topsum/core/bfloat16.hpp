// SPDX-License-Identifier: BSL-1.0
/// \file
/// Gradients in bfloat16: the upper half of a float.
#ifndef TOPSUM_CORE_BFLOAT16_HPP
#define TOPSUM_CORE_BFLOAT16_HPP

#include <bit>
#include <cstdint>

#include <topsum/core/value.hpp>

namespace topsum {

namespace detail {

/// The bits of the nearest bfloat16, ties to the even one; NaN stays NaN. No branches: loops over it vectorise.
[[nodiscard]] constexpr std::uint16_t float_to_bfloat16(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  std::uint32_t const quiet = bits >> 16 | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

}  // namespace detail

/// A value in bfloat16: storage, no arithmetic. The magnitudes of a float, 8 significant bits.
///
/// Gradients of `bfloat16` are accumulated, sent and summed in float; a dense result is rounded once, to the nearest bfloat16.
/// `__nv_bfloat16` is the same, with `core/cuda_values.hpp`. Prefer `half` where gradients are scaled into its range.
class bfloat16 {
 public:
  bfloat16() = default;
  /// The nearest bfloat16, ties to the even one.
  explicit constexpr bfloat16(float value) noexcept : bits_{detail::float_to_bfloat16(value)} {}
  /// Exact.
  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

  /// The bfloat16 with these bits: sign, exponent, fraction.
  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 x{};
    x.bits_ = bits;
    return x;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

  /// As floats compare: zeros are equal, NaN is not.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  std::uint16_t bits_;
};

template <>
struct value_traits<bfloat16> {
  using wide = float;
  static constexpr std::uint32_t code = 4;
};

}  // namespace topsum

#endif
