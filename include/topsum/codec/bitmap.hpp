// SPDX-License-Identifier: BSL-1.0
/// \file
/// Index codec: a bit for every place.
#ifndef TOPSUM_CODEC_BITMAP_HPP
#define TOPSUM_CODEC_BITMAP_HPP

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <topsum/codec/index_codes.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Index codec: a bit for every place of the message's range, set where an entry is: extent / count bits an index.
///
/// O(count + extent / 64). Prefer it from a density of about 1/4 on, `elias_fano` below.
struct bitmap {
  using stage_tag = index_codec_tag;
  static constexpr std::string_view name = "bitmap";

  void validate() const noexcept {}

  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t extent) const noexcept {
    return count == 0 ? 0 : bytes_for(extent);
  }
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t messages,
                                                    std::size_t extent) const noexcept {
    return std::min(count, messages) * bytes_for(extent);
  }

  template <class B, class I>
  void encode(B& backend, typename B::template span<I const> indices, std::size_t first, std::size_t /*extent*/,
              typename B::template span<std::byte> out) const {
    backend.encode_bitmap(indices, first, out);
  }
  template <class B, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t first, std::size_t /*extent*/,
              typename B::template span<I> indices) const {
    backend.decode_bitmap(in, first, indices);
  }
};

}  // namespace topsum

#endif
