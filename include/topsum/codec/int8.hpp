// SPDX-License-Identifier: BSL-1.0
/// \file
/// Value codec: eight bits and a scale.
#ifndef TOPSUM_CODEC_INT8_HPP
#define TOPSUM_CODEC_INT8_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Value codec: the nearest of 255 multiples of largest / 127, ties away from zero; a message carries that scale.
///
/// The absolute error is at most half a step, that is 1/254 of the message's largest magnitude. 8 bits a value and sizeof(R) bytes a
/// message. Lossy. Prefer `as<bfloat16>` where small entries matter as much as large ones.
struct int8 {
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = "int8";
  static constexpr bool lossless = false;
  /// The distance of two neighbouring values.
  template <class R>
  struct header {
    R step = 0;
  };
  template <class R>
  static constexpr int bits = 8;

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] header<R> summarise(R const* values, std::size_t count) const noexcept {
    R largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
    return {largest / 127};
  }
  template <class R>
  [[nodiscard]] std::uint64_t code(header<R> const& scale, R value, std::uint64_t /*index*/) const noexcept {
    if (!(scale.step > 0)) return 0;
    R const steps = std::min(R{127}, std::max(R{-127}, value / scale.step));
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(steps + (steps < 0 ? R{-0.5} : R{0.5})));
  }
  template <class R>
  [[nodiscard]] R value(header<R> const& scale, std::uint64_t code) const noexcept {
    return scale.step * static_cast<R>(static_cast<std::int8_t>(static_cast<std::uint8_t>(code)));
  }
};

}  // namespace topsum

#endif
