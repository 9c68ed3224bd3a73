// SPDX-License-Identifier: BSL-1.0
/// \file
/// Value codec: QSGD's unbiased levels.
#ifndef TOPSUM_CODEC_QSGD_HPP
#define TOPSUM_CODEC_QSGD_HPP

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/core/random.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Value codec: |x| over the message's 2-norm, rounded up or down to one of s = 2^(Bits-1) - 1 levels at random, so that the
/// expectation is x; and the sign.
///
/// `Bits` bits a value and sizeof(R) bytes a message. Which way a value is rounded follows from (seed, index, value) alone: the same in
/// every run. Unbiased over seeds; variance at most min(k/s^2, sqrt(k)/s) |x|^2 for k values. Lossy. Prefer `int8` with error feedback,
/// which does not need to be unbiased, `qsgd` without a residual. The norm is summed in double, in order.
/// Source: QSGD (Alistarh et al., NeurIPS'17, section 3.1).
template <int Bits>
struct qsgd {
  static_assert(Bits >= 2 && Bits <= 16, "topsum: qsgd<Bits> takes 2 to 16 bits a value");
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = "qsgd";
  static constexpr bool lossless = false;
  static constexpr std::uint64_t levels = (std::uint64_t{1} << (Bits - 1)) - 1;
  /// The 2-norm of a message.
  template <class R>
  struct header {
    R norm = 0;
  };
  template <class R>
  static constexpr int bits = Bits;

  std::uint64_t seed = 0;

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] header<R> summarise(R const* values, std::size_t count) const noexcept {
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      auto const x = static_cast<double>(values[i]);
      squares += x * x;
    }
    return {static_cast<R>(std::sqrt(squares))};
  }
  template <class R>
  [[nodiscard]] std::uint64_t code(header<R> const& all, R value, std::uint64_t index) const noexcept {
    if (!(all.norm > 0)) return 0;
    double const place = std::min(1.0, std::abs(static_cast<double>(value)) / static_cast<double>(all.norm)) *
                         static_cast<double>(levels);
    std::uint64_t const random = random_bits(random_bits(seed, index), std::bit_cast<bits_t<R>>(value));
    double const uniform = static_cast<double>(random >> 11) * 0x1p-53;
    auto const level = std::min(levels, static_cast<std::uint64_t>(place + uniform));
    return level << 1 | (std::bit_cast<bits_t<R>>(value) >> magnitude_bits<R>);
  }
  template <class R>
  [[nodiscard]] R value(header<R> const& all, std::uint64_t code) const noexcept {
    auto const size = static_cast<R>(static_cast<double>(all.norm) * static_cast<double>(code >> 1) /
                                     static_cast<double>(levels));
    return (code & 1U) == 0 ? size : -size;
  }

  void describe(description& out) const {
    out.open(name);
    out("bits", Bits);
    out("seed", seed);
    out.close();
  }
};

}  // namespace topsum

#endif
