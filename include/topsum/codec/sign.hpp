// SPDX-License-Identifier: BSL-1.0
/// \file
/// Value codec: the sign, and one magnitude for all.
#ifndef TOPSUM_CODEC_SIGN_HPP
#define TOPSUM_CODEC_SIGN_HPP

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Value codec: the sign of each value; a message carries the mean magnitude, which stands for all of them.
///
/// 1 bit a value and sizeof(R) bytes a message. Lossy; with error feedback what is missing from large values follows in later steps.
/// The mean is summed in double, in order. Source: scaled sign, as in EF-signSGD (Karimireddy et al., ICML'19).
struct sign {
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = "sign";
  static constexpr bool lossless = false;
  /// The mean magnitude of a message.
  template <class R>
  struct header {
    R size = 0;
  };
  template <class R>
  static constexpr int bits = 1;

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] header<R> summarise(R const* values, std::size_t count) const noexcept {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += std::abs(static_cast<double>(values[i]) / static_cast<double>(count));
    return {static_cast<R>(sum)};
  }
  template <class R>
  [[nodiscard]] std::uint64_t code(header<R> const&, R value, std::uint64_t /*index*/) const noexcept {
    return std::bit_cast<bits_t<R>>(value) >> magnitude_bits<R>;
  }
  template <class R>
  [[nodiscard]] R value(header<R> const& mean, std::uint64_t code) const noexcept {
    return code == 0 ? mean.size : -mean.size;
  }
};

}  // namespace topsum

#endif
