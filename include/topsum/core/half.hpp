// SPDX-License-Identifier: BSL-1.0
/// \file
/// Gradients in IEEE 754 half precision: 1 sign bit, 5 of exponent, 10 of fraction.
#ifndef TOPSUM_CORE_HALF_HPP
#define TOPSUM_CORE_HALF_HPP

#include <bit>
#include <cstdint>

#include <topsum/core/value.hpp>

namespace topsum {

namespace detail {

/// All ones where `holds`. Choosing by it leaves compilers no branch to make: loops over what follows vectorise.
[[nodiscard]] constexpr std::uint32_t ones_if(bool holds) noexcept { return 0U - std::uint32_t{holds}; }

/// `a` where all bits of `mask` are ones, `b` where none is.
[[nodiscard]] constexpr std::uint32_t choose(std::uint32_t mask, std::uint32_t a, std::uint32_t b) noexcept {
  return b ^ ((a ^ b) & mask);
}

/// The float of a half's bits, exactly; NaN stays NaN. No operand is subnormal: tiny values cost no more than others, and
/// are right where the processor takes subnormal floats for zero.
[[nodiscard]] constexpr float half_to_float(std::uint16_t bits) noexcept {
  constexpr std::uint32_t rebias = std::uint32_t{127 - 15} << 23;
  constexpr std::uint32_t least_normal = std::uint32_t{127 - 14} << 23;
  std::uint32_t const size = bits & 0x7fffU;
  std::uint32_t const shifted = size << 13;
  // A subnormal half: 2^-14 (1 + fraction) - 2^-14.
  float const tiny = std::bit_cast<float>(shifted + least_normal) - std::bit_cast<float>(least_normal);
  std::uint32_t const normal = shifted + rebias + (ones_if(size > 0x7bffU) & rebias);
  std::uint32_t const all = choose(ones_if(size < 0x0400U), std::bit_cast<std::uint32_t>(tiny), normal);
  return std::bit_cast<float>(all | (bits & 0x8000U) << 16);
}

/// The bits of the nearest half, ties to the even one; from 65520 on infinity; NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t float_to_half(float value) noexcept {
  constexpr std::uint32_t infinity = 0x7f800000U;
  constexpr std::uint32_t too_large = std::uint32_t{127 + 16} << 23;
  constexpr std::uint32_t least_normal = std::uint32_t{127 - 14} << 23;
  constexpr std::uint32_t one_half = std::uint32_t{127 - 1} << 23;  // its last place is 2^-24, the least half
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const size = bits & 0x7fffffffU;
  std::uint32_t const tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - one_half;
  std::uint32_t const normal = (size - (std::uint32_t{127 - 15} << 23) + 0xfffU + (size >> 13 & 1U)) >> 13;
  std::uint32_t const large = 0x7c00U | (ones_if(size > infinity) & 0x0200U);
  std::uint32_t const rounded = choose(ones_if(size < least_normal), tiny, normal);
  return static_cast<std::uint16_t>(choose(ones_if(size >= too_large), large, rounded) | (bits >> 16 & 0x8000U));
}

}  // namespace detail

/// A value in half precision: storage, no arithmetic. Magnitudes from 2^-24 to 65504, 11 significant bits.
///
/// Gradients of `half` are accumulated, sent and summed in float; a dense result is rounded once, to the nearest half, and is
/// infinite from 65520 on. Any type of the same format will do: `_Float16` where the compiler has it, `__half` with
/// `core/cuda_values.hpp`. Prefer `bfloat16` where gradients may be larger or smaller than a half can say.
class half {
 public:
  half() = default;
  /// The nearest half, ties to the even one, in the default rounding mode.
  explicit constexpr half(float value) noexcept : bits_{detail::float_to_half(value)} {}
  /// Exact.
  explicit constexpr operator float() const noexcept { return detail::half_to_float(bits_); }

  /// The half with these bits: sign, exponent, fraction.
  [[nodiscard]] static constexpr half from_bits(std::uint16_t bits) noexcept {
    half x{};
    x.bits_ = bits;
    return x;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

  /// As floats compare: zeros are equal, NaN is not.
  friend constexpr bool operator==(half a, half b) noexcept { return static_cast<float>(a) == static_cast<float>(b); }

 private:
  std::uint16_t bits_;
};

template <>
struct value_traits<half> {
  using wide = float;
  static constexpr std::uint32_t code = 3;
};

#if defined(__FLT16_MANT_DIG__)
/// The compiler's half: the same bits, and so the same code as `half`.
template <>
struct value_traits<_Float16> : same_format_as<half, _Float16> {};
#endif

}  // namespace topsum

#endif
