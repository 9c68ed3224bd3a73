// SPDX-License-Identifier: BSL-1.0
/// \file
/// Codec: indices and values as they are.
#ifndef TOPSUM_CODEC_RAW_HPP
#define TOPSUM_CODEC_RAW_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/core/entries.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Codec: all indices, then all values, in the machine's byte order: sizeof(I) + sizeof(R) bytes an entry, two words for
/// 32-bit types (COO). Lossless. Ranks must share a byte order. The default.
struct raw {
  using stage_tag = codec_tag;
  static constexpr std::string_view name = "raw";
  static constexpr bool lossless = true;

  void validate() const noexcept {}

  /// Bytes of a message of `count` entries.
  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t /*first*/,
                                            std::size_t /*extent*/) const noexcept {
    return count * (sizeof(I) + sizeof(R));
  }
  /// Bytes of any `messages` with `count` entries in all.
  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t /*messages*/,
                                                    std::size_t /*extent*/) const noexcept {
    return count * (sizeof(I) + sizeof(R));
  }

  /// Writes `bytes(run.size(), ...)` bytes to the front of `out`.
  template <class B, class R, class I>
  void encode(B& backend, entries_run<B, R, I> run, std::size_t /*first*/, std::size_t /*extent*/,
              typename B::template span<std::byte> out) const {
    std::size_t const index_bytes = run.size() * sizeof(I);
    backend.pack(run.indices, out.subspan(0, index_bytes));
    backend.pack(run.values, out.subspan(index_bytes, run.size() * sizeof(R)));
  }

  /// Reads `count` entries from the front of `in` into `list`, whose capacity is at least `count`; indices must increase
  /// within [first, first + extent), else the list is left empty and `fault` set.
  template <class B, class R, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t count, std::size_t first,
              std::size_t extent, entries_view<B, R, I> list, typename B::template span<std::uint32_t> fault) const {
    std::size_t const index_bytes = count * sizeof(I);
    backend.unpack(in.subspan(0, index_bytes), list.indices.subspan(0, count));
    backend.unpack(in.subspan(index_bytes, count * sizeof(R)), list.values.subspan(0, count));
    backend.fill(list.count, count);
    backend.check(list, first, first + extent, fault);
  }
};

}  // namespace topsum

#endif
