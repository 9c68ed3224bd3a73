// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host backend's verbs over plain memory.
#ifndef TOPSUM_DETAIL_HOST_MEMORY_HPP
#define TOPSUM_DETAIL_HOST_MEMORY_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <topsum/core/memory.hpp>

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

/// std::memmove, of nothing too.
inline void move_bytes(void* to, void const* from, std::size_t bytes) noexcept {
  // One comparison for zero and for sizes that cannot be, which g++ would warn of.
  if (bytes - 1 < static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) std::memmove(to, from, bytes);
}

/// Memory in, out and across. Everything has happened when a verb returns.
class host_memory_verbs {
 public:
  /// All of `to` becomes `value`.
  template <class T>
  void fill(host_span<T> to, std::type_identity_t<T> value) {
    fill_memory(to, value);
  }

  /// All of `from` to the front of `to`; they may overlap.
  template <class T>
  void copy(host_span<T> from, host_span<std::remove_const_t<T>> to) {
    assert(to.size() >= from.size());
    move_bytes(to.data(), from.data(), from.size_bytes());
  }

  /// The bytes of all of `from` to the front of `to`.
  template <class T>
  void pack(host_span<T> from, host_span<std::byte> to) {
    assert(to.size() >= from.size_bytes());
    move_bytes(to.data(), from.data(), from.size_bytes());
  }

  /// Fills all of `to` from the bytes at the front of `from`.
  template <class T>
  void unpack(host_span<std::byte const> from, host_span<T> to) {
    assert(from.size() >= to.size_bytes());
    move_bytes(to.data(), from.data(), to.size_bytes());
  }

  /// Host memory -> here: all of `from` to the front of `to`.
  template <class T>
  void write(host_span<T> from, host_span<std::remove_const_t<T>> to) {
    copy(from, to);
  }

  /// Here -> host memory: all of `from` to the front of `to`.
  template <class T>
  void read(host_span<T> from, host_span<std::remove_const_t<T>> to) {
    copy(from, to);
  }

  /// The one value of a span of one.
  template <class T>
  [[nodiscard]] std::remove_const_t<T> read(host_span<T> from) {
    assert(from.size() == 1);
    return from[0];
  }

  /// Everything has run already.
  void wait() noexcept {}
};

}  // namespace topsum::detail

#endif
