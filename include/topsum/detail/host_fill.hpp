// SPDX-License-Identifier: BSL-1.0
/// \file
/// Fills memory; past the caches when there is much of it.
#ifndef TOPSUM_DETAIL_HOST_FILL_HPP
#define TOPSUM_DETAIL_HOST_FILL_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace topsum::detail {

/// From this many bytes on, stores go past the caches: what is filled is then larger than what stays in them, and a store that
/// does not read its line first moves half the bytes.
inline constexpr std::size_t streamed_fill_bytes = std::size_t{4} << 20;

/// Sets every element of `to` to `value`.
template <class T>
void fill_memory(std::span<T> to, T const& value) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  if constexpr (sizeof(T) <= 16 && std::has_single_bit(sizeof(T))) {
    auto const misaligned = reinterpret_cast<std::uintptr_t>(to.data()) % line;
    if (to.size_bytes() >= streamed_fill_bytes && misaligned % sizeof(T) == 0) {
      std::size_t const head = (line - misaligned) % line / sizeof(T);
      std::size_t const lines = (to.size() - head) / (line / sizeof(T));
      std::size_t const tail = head + lines * (line / sizeof(T));
      std::array<T, 16 / sizeof(T)> pattern;
      pattern.fill(value);
      __m128i vector;
      std::memcpy(&vector, &pattern, sizeof vector);
      std::fill_n(to.data(), head, value);
      auto* at = reinterpret_cast<__m128i*>(to.data() + head);
      for (std::size_t i = 0; i < lines; ++i, at += 4) {
        for (int part = 0; part < 4; ++part) _mm_stream_si128(at + part, vector);
      }
      _mm_sfence();
      std::fill(to.begin() + static_cast<std::ptrdiff_t>(tail), to.end(), value);
      return;
    }
  }
#endif
  std::fill(to.begin(), to.end(), value);
}

}  // namespace topsum::detail

#endif
