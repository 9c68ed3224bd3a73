// SPDX-License-Identifier: BSL-1.0
/// \file
/// Index codec: every index in as many bits as the range needs.
#ifndef TOPSUM_CODEC_PACKED_HPP
#define TOPSUM_CODEC_PACKED_HPP

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <topsum/codec/index_codes.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Index codec: ceil(log2(extent)) bits an index, one behind the other: 20 for a message of 2^20 places, 12 for a chunk of 4096.
///
/// O(count). Prefer `elias_fano`, which needs less than half of that at 1 %.
struct packed {
  using stage_tag = index_codec_tag;
  static constexpr std::string_view name = "packed";

  void validate() const noexcept {}

  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t extent) const noexcept {
    return bytes_for(count * static_cast<std::size_t>(bits_below(extent)));
  }
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t messages,
                                                    std::size_t extent) const noexcept {
    return bytes(count, extent) + std::min(count, messages);
  }

  template <class B, class I>
  void encode(B& backend, typename B::template span<I const> indices, std::size_t first, std::size_t extent,
              typename B::template span<std::byte> out) const {
    backend.encode_bits(indices, first, bits_below(extent), out);
  }
  template <class B, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t first, std::size_t extent,
              typename B::template span<I> indices) const {
    backend.decode_bits(in, first, bits_below(extent), indices);
  }
};

}  // namespace topsum

#endif
