// SPDX-License-Identifier: BSL-1.0
/// \file
/// What a gradient's values must offer, and the order of magnitudes that every selection uses.
#ifndef TOPSUM_CORE_VALUE_HPP
#define TOPSUM_CORE_VALUE_HPP

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace topsum {

/// The trait that lets a type be a gradient's value: specialise it for a type of your own.
///
/// - `wide`: the type that residuals are kept and sums are taken in: at least float.
/// - `code`: a number from 1 to 255 that names the format on the wire; the same on every rank. The library's are below 64; types
///   of the same format share theirs, so that ranks may mix them.
/// - `to_wide(T)`, `from_wide(wide)`: optional, where `static_cast` is not what is wanted: exact, and to the nearest. They run in
///   the inner loops: keep them free of branches and calls, so that these vectorise.
template <class T>
struct value_traits;

template <>
struct value_traits<float> {
  using wide = float;
  static constexpr std::uint32_t code = 1;
};

template <>
struct value_traits<double> {
  using wide = double;
  static constexpr std::uint32_t code = 2;
};

/// The type in which residuals are kept and sums are taken for gradients of `T`.
template <class T>
using wide_t = typename value_traits<T>::wide;

/// x in the type of residuals and sums: exact.
template <class T>
  requires requires(T x) { value_traits<T>::to_wide(x); } || requires(T x) { static_cast<wide_t<T>>(x); }
[[nodiscard]] constexpr wide_t<T> to_wide(T x) noexcept {
  if constexpr (requires { value_traits<T>::to_wide(x); }) {
    return value_traits<T>::to_wide(x);
  } else {
    return static_cast<wide_t<T>>(x);
  }
}

/// A sum as a gradient's value: the nearest, ties to even; infinite where it is too large for `T`.
template <class T>
  requires requires(wide_t<T> x) { value_traits<T>::from_wide(x); } || requires(wide_t<T> x) { static_cast<T>(x); }
[[nodiscard]] constexpr T from_wide(wide_t<T> x) noexcept {
  if constexpr (requires { value_traits<T>::from_wide(x); }) {
    return value_traits<T>::from_wide(x);
  } else {
    return static_cast<T>(x);
  }
}

/// The traits of a type `T` that has the bits of `Known`: code, wide type and conversions are those of `Known`.
template <class Known, class T>
struct same_format_as {
  static_assert(sizeof(T) == sizeof(Known));
  using wide = wide_t<Known>;
  static constexpr std::uint32_t code = value_traits<Known>::code;
  [[nodiscard]] static constexpr wide to_wide(T x) noexcept { return topsum::to_wide(std::bit_cast<Known>(x)); }
  [[nodiscard]] static constexpr T from_wide(wide x) noexcept { return std::bit_cast<T>(topsum::from_wide<Known>(x)); }
};

/// The unsigned integer as wide as `R`: its bits without the sign order as magnitudes do.
template <class R>
using bits_t =
    std::conditional_t<sizeof(R) == 8, std::uint64_t, std::conditional_t<sizeof(R) == 2, std::uint16_t, std::uint32_t>>;

/// Magnitude of x as an integer: |a| < |b| exactly when the integers compare so; NaN sorts above infinity.
template <std::floating_point R>
[[nodiscard]] constexpr bits_t<R> magnitude(R x) noexcept {
  return static_cast<bits_t<R>>(std::bit_cast<bits_t<R>>(x) & (~bits_t<R>{0} >> 1));
}

/// The value whose magnitude is `bits`; inverse of `magnitude` on non-negative values.
template <std::floating_point R>
[[nodiscard]] constexpr R from_magnitude(bits_t<R> bits) noexcept {
  return std::bit_cast<R>(bits);
}

/// Number of bits in a magnitude of `R`: 31 for float, 63 for double.
template <std::floating_point R>
inline constexpr int magnitude_bits = static_cast<int>(sizeof(R)) * 8 - 1;

/// The smallest magnitude that is not finite. Tests on bits survive `-ffast-math`.
template <std::floating_point R>
inline constexpr bits_t<R> nonfinite_magnitude = std::bit_cast<bits_t<R>>(std::numeric_limits<R>::infinity());

/// Whether x is neither NaN nor infinite.
template <std::floating_point R>
[[nodiscard]] constexpr bool is_finite(R x) noexcept {
  return magnitude(x) < nonfinite_magnitude<R>;
}

/// a * b + c with the product rounded first, whatever contraction the compiler was asked for:
/// paths of different vector width then agree bit for bit.
template <std::floating_point R>
[[nodiscard]] constexpr R multiply_then_add(R a, R b, R c) noexcept {
#if defined(__clang__)
#pragma clang fp contract(off)
  return a * b + c;
#elif defined(__GNUC__)
  return __builtin_assoc_barrier(a * b) + c;
#else
  return a * b + c;
#endif
}

}  // namespace topsum

#endif
