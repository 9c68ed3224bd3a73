// SPDX-License-Identifier: BSL-1.0
/// \file
/// Value codecs: as they are, and as another floating-point format.
#ifndef TOPSUM_CODEC_AS_HPP
#define TOPSUM_CODEC_AS_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Of a value codec whose messages need none.
struct no_header {};

/// Value codec: values as they are, 32 or 64 bits each. Lossless.
struct as_is {
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = "as_is";
  static constexpr bool lossless = true;
  template <class R>
  using header = no_header;
  template <class R>
  static constexpr int bits = static_cast<int>(8 * sizeof(R));

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] constexpr no_header summarise(R const*, std::size_t) const noexcept {
    return {};
  }
  template <class R>
  [[nodiscard]] constexpr std::uint64_t code(no_header, R value, std::uint64_t /*index*/) const noexcept {
    return std::bit_cast<bits_t<R>>(value);
  }
  template <class R>
  [[nodiscard]] constexpr R value(no_header, std::uint64_t code) const noexcept {
    return std::bit_cast<R>(static_cast<bits_t<R>>(code));
  }
};

/// Value codec: every value as the nearest `V`, ties to even: `as<half>`, `as<bfloat16>`, or `as<float>` for sums in double.
///
/// The relative error is at most 2^-11 for half (absolute 2^-25 below 2^-14), 2^-8 for bfloat16. Finite values stay finite: what is
/// too large becomes the largest `V`, and the rest of it stays in the residual. Lossy.
template <class V>
struct as {
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = value_traits<V>::code == value_traits<float>::code ? "as<float>"
                                           : value_traits<V>::code == 3                       ? "as<half>"
                                           : value_traits<V>::code == 4                       ? "as<bfloat16>"
                                                                                              : "as";
  static constexpr bool lossless = false;
  template <class R>
  using header = no_header;
  template <class R>
  static constexpr int bits = static_cast<int>(8 * sizeof(V));

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] constexpr no_header summarise(R const*, std::size_t) const noexcept {
    return {};
  }
  template <class R>
  [[nodiscard]] constexpr std::uint64_t code(no_header, R value, std::uint64_t /*index*/) const noexcept {
    using narrow_bits = bits_t<V>;
    auto const narrow = std::bit_cast<narrow_bits>(from_wide<V>(static_cast<wide_t<V>>(value)));
    constexpr auto infinity = std::bit_cast<narrow_bits>(from_wide<V>(std::numeric_limits<wide_t<V>>::infinity()));
    constexpr auto size_mask = static_cast<narrow_bits>(static_cast<narrow_bits>(~narrow_bits{0}) >> 1);
    bool const overflowed = (narrow & size_mask) == infinity;  // the largest finite one is the number before
    return static_cast<narrow_bits>(narrow - (overflowed ? 1U : 0U));
  }
  template <class R>
  [[nodiscard]] constexpr R value(no_header, std::uint64_t code) const noexcept {
    return static_cast<R>(to_wide(std::bit_cast<V>(static_cast<bits_t<V>>(code))));
  }
};

}  // namespace topsum

#endif
