// SPDX-License-Identifier: BSL-1.0
/// \file
/// Sizes of coded indices, which both sides compute from a message's count and extent.
#ifndef TOPSUM_CODEC_INDEX_CODES_HPP
#define TOPSUM_CODEC_INDEX_CODES_HPP

#include <bit>
#include <cstddef>
#include <cstdint>

namespace topsum {

/// Bits that tell a number below `extent`.
[[nodiscard]] constexpr int bits_below(std::size_t extent) noexcept {
  return extent <= 1 ? 0 : static_cast<int>(std::bit_width(extent - 1));
}

/// Bytes that hold so many bits.
[[nodiscard]] constexpr std::size_t bytes_for(std::size_t bits) noexcept { return bits / 8 + (bits % 8 != 0 ? 1 : 0); }

/// How Elias-Fano splits `count` > 0 increasing numbers below `extent`: the low bits as they are, the high bits as the distances of
/// set bits in a run of `upper` bits.
struct elias_fano_shape {
  int low = 0;            ///< floor(log2(extent / count))
  std::size_t upper = 0;  ///< bits: count + the largest high half + 1
  std::size_t lower = 0;  ///< bits: count * low

  constexpr elias_fano_shape(std::size_t count, std::size_t extent) noexcept {
    if (count == 0 || extent == 0) return;
    low = extent / count == 0 ? 0 : static_cast<int>(std::bit_width(extent / count)) - 1;
    upper = count + ((extent - 1) >> low);
    lower = count * static_cast<std::size_t>(low);
  }
  [[nodiscard]] constexpr std::size_t upper_bytes() const noexcept { return bytes_for(upper); }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return upper_bytes() + bytes_for(lower); }
};

}  // namespace topsum

#endif
