// SPDX-License-Identifier: BSL-1.0
/// \file
/// Index codec: Elias-Fano.
#ifndef TOPSUM_CODEC_ELIAS_FANO_HPP
#define TOPSUM_CODEC_ELIAS_FANO_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>

#include <topsum/codec/index_codes.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Index codec: the low l = floor(log2(extent / count)) bits of each index as they are, the high bits in unary.
///
/// l + 1 + extent / (count 2^l) bits an index: 8.56 at 1 % of 2^20, at most half a bit above what any code needs (log2 C(n, k) / k is
/// 8.1 there). The size follows from count and extent. Encode and decode are O(count + extent / (64 * 2^l)) word operations.
/// Source: Elias, J. ACM 21(2), 1974; Fano, 1971. Prefer `packed` where a decoder must be trivial, `bitmap` from a density of 1/4 on.
struct elias_fano {
  using stage_tag = index_codec_tag;
  static constexpr std::string_view name = "elias_fano";

  void validate() const noexcept {}

  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t extent) const noexcept {
    return count == 0 ? 0 : elias_fano_shape{count, extent}.bytes();
  }
  /// A message's bits are below count (l + 3) + 16, and the sum of count * l is largest where messages are alike.
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t messages,
                                                    std::size_t extent) const noexcept {
    if (count == 0) return 0;
    std::size_t const used = std::min(count, messages);
    auto const low = static_cast<std::size_t>(bits_below(extent)) -
                     std::min(static_cast<std::size_t>(bits_below(extent)),
                              static_cast<std::size_t>(std::bit_width(count / used)) - 1);
    return bytes_for(count * (low + 3)) + 2 * used;
  }

  template <class B, class I>
  void encode(B& backend, typename B::template span<I const> indices, std::size_t first, std::size_t extent,
              typename B::template span<std::byte> out) const {
    backend.encode_elias_fano(indices, first, elias_fano_shape{indices.size(), extent}, out);
  }
  template <class B, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t first, std::size_t extent,
              typename B::template span<I> indices) const {
    backend.decode_elias_fano(in, first, elias_fano_shape{indices.size(), extent}, indices);
  }
};

}  // namespace topsum

#endif
