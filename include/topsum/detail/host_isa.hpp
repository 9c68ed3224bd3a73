// SPDX-License-Identifier: BSL-1.0
/// \file
/// The instruction sets of the host's kernels, and the few operations in which they differ.
#ifndef TOPSUM_DETAIL_HOST_ISA_HPP
#define TOPSUM_DETAIL_HOST_ISA_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <topsum/core/value.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace topsum {

/// Which instructions the host's fused passes use. All give the same bits.
enum class instruction_set : unsigned char {
  automatic,  ///< the widest that this CPU has
  portable,   ///< what the compiler was told to use
  avx2,
  avx512
};

namespace detail {

/// Whether this CPU runs `set`.
[[nodiscard]] inline bool cpu_has(instruction_set set) noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  switch (set) {
    case instruction_set::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    case instruction_set::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt");
    case instruction_set::automatic:
    case instruction_set::portable: return true;
  }
  return false;
#else
  return set == instruction_set::automatic || set == instruction_set::portable;
#endif
}

/// What `wanted` means on this CPU: itself, or the widest below it that runs.
[[nodiscard]] inline instruction_set resolved(instruction_set wanted) noexcept {
  if (wanted == instruction_set::automatic) wanted = instruction_set::avx512;
  if (wanted == instruction_set::avx512 && !cpu_has(wanted)) wanted = instruction_set::avx2;
  if (wanted == instruction_set::avx2 && !cpu_has(wanted)) wanted = instruction_set::portable;
  return wanted;
}

/// Values that a fused pass evaluates at a time: 256 bytes.
template <class R>
inline constexpr std::size_t block_size = 256 / sizeof(R);

/// The lowest `n` bits, n <= 64.
[[nodiscard]] constexpr std::uint64_t low_bits(std::size_t n) noexcept {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// One bit per byte of `flags` (each 0 or 1), `N` of them, a multiple of 8.
template <std::size_t N>
[[nodiscard]] inline std::uint64_t mask_of(unsigned char const* flags) noexcept {
  std::uint64_t mask = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (std::size_t i = 0; i < N; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, flags + i, 8);
      mask |= (word * 0x0102040810204080ULL >> 56) << i;
    }
  } else {
    for (std::size_t i = 0; i < N; ++i) mask |= std::uint64_t{flags[i]} << i;
  }
  return mask;
}

/// Operations of a block, in what the compiler was told to use.
struct portable_ops {
  /// first + i for each bit i of `mask`.
  static std::size_t positions_of(std::uint64_t mask, std::uint32_t first, std::uint32_t* out) noexcept {
    std::size_t n = 0;
    for (; mask != 0; mask &= mask - 1) out[n++] = first + static_cast<std::uint32_t>(std::countr_zero(mask));
    return n;
  }

  /// Bit i: the magnitude of block[i] is at least `t`. A whole block is read.
  template <class R>
  static std::uint64_t at_least(R const* block, bits_t<R> t) noexcept {
    constexpr std::size_t n = block_size<R>;
#if defined(__x86_64__) && defined(__GNUC__)
    if constexpr (sizeof(R) == 4) {
      __m128i const below = _mm_set1_epi32(static_cast<int>(t) - 1);
      __m128i const strip = _mm_set1_epi32(0x7fffffff);
      std::uint64_t mask = 0;
      for (std::size_t i = 0; i < n; i += 4) {
        __m128i const m = _mm_and_si128(_mm_castps_si128(_mm_loadu_ps(block + i)), strip);
        mask |= static_cast<std::uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(m, below)))) << i;
      }
      return mask;
    }
#endif
    unsigned char flags[n];
    for (std::size_t i = 0; i < n; ++i) flags[i] = magnitude(block[i]) >= t ? 1 : 0;
    return mask_of<n>(flags);
  }

  /// A block to memory that starts a cache line, past the caches: its lines are not read first. `streamed` must follow.
  template <class R>
  static void stream(R* to, R const* block) noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
    for (std::size_t i = 0; i < block_size<R>; i += 16 / sizeof(R)) {
      __m128i part;
      std::memcpy(&part, block + i, sizeof part);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
    }
#else
    std::memcpy(to, block, block_size<R> * sizeof(R));
#endif
  }
  /// Puts what was streamed before what is stored from here on.
  static void streamed() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
    _mm_sfence();
#endif
  }

  /// Bit i: the magnitude of block[i] is at least limits[i], which is at most that of a NaN. Whole blocks are read.
  template <class R>
  static std::uint64_t at_least_each(R const* block, bits_t<R> const* limits) noexcept {
    constexpr std::size_t n = block_size<R>;
    unsigned char flags[n];
    for (std::size_t i = 0; i < n; ++i) flags[i] = magnitude(block[i]) >= limits[i] ? 1 : 0;
    return mask_of<n>(flags);
  }

  /// Appends the entries named by `mask`; returns how many. May write a whole block.
  template <class R, class I>
  static std::size_t append(R const* block, std::uint64_t mask, std::size_t first, I* indices, R* values) noexcept {
    std::size_t n = 0;
    for (; mask != 0; mask &= mask - 1, ++n) {
      auto const i = static_cast<std::size_t>(std::countr_zero(mask));
      indices[n] = static_cast<I>(first + i);
      values[n] = block[i];
    }
    return n;
  }

  /// Appends first + i for each i < n with a magnitude of block[i] of at least `t`; returns how many. Whole blocks are read,
  /// and may be written.
  template <class R>
  static std::size_t positions(R const* block, bits_t<R> t, std::size_t n, std::uint32_t first,
                               std::uint32_t* out) noexcept {
    return positions_of(at_least(block, t) & low_bits(n), first, out);
  }

  /// The same with a limit for each element.
  template <class R>
  static std::size_t positions_each(R const* block, bits_t<R> const* limits, std::size_t n, std::uint32_t first,
                                    std::uint32_t* out) noexcept {
    return positions_of(at_least_each(block, limits) & low_bits(n), first, out);
  }

  /// Copies entry i < n to the front of a list where before[i] < k, its index being begin + positions[i]. Writes fewer than 16
  /// entries more than it copies.
  template <class R, class I>
  static void keep_ranked(std::uint32_t const* positions, R const* values, std::make_signed_t<bits_t<R>> const* before,
                          std::size_t n, std::size_t k, std::size_t begin, I* indices, R* to_values) noexcept {
    std::size_t used = 0;
    for (std::size_t i = 0; i < n; ++i) {
      indices[used] = static_cast<I>(begin + positions[i]);
      to_values[used] = values[i];
      used += static_cast<std::size_t>(before[i]) < k ? 1U : 0U;
    }
  }

  /// Copies the entries above `bits`, and of those equal to it the first `ties`, while at least 16 more fit into `room`.
  /// Advances `used`, lowers `ties`, and returns how many entries it has dealt with: none here.
  template <class R, class I>
  static std::size_t compact(I const*, R const*, std::size_t, bits_t<R>, std::size_t&, I*, R*, std::size_t&,
                             std::size_t) noexcept {
    return 0;
  }
};

#if defined(__x86_64__) && defined(__GNUC__)
struct avx2_ops : portable_ops {
  template <class R>
  [[gnu::target("avx2")]] static std::uint64_t at_least_each(R const* block, bits_t<R> const* limits) noexcept {
    std::uint64_t below = 0;
    if constexpr (sizeof(R) == 4) {
      __m256i const strip = _mm256_set1_epi32(0x7fffffff);
      for (std::size_t i = 0; i < block_size<R>; i += 8) {
        __m256i const m = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(block + i)), strip);
        __m256i const limit = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(limits + i));
        auto const bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, m))));
        below |= std::uint64_t{bits} << i;
      }
    } else {
      __m256i const strip = _mm256_set1_epi64x(0x7fffffffffffffffLL);
      for (std::size_t i = 0; i < block_size<R>; i += 4) {
        __m256i const m = _mm256_and_si256(_mm256_castpd_si256(_mm256_loadu_pd(block + i)), strip);
        __m256i const limit = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(limits + i));
        auto const bits = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(limit, m))));
        below |= std::uint64_t{bits} << i;
      }
    }
    return ~below & low_bits(block_size<R>);
  }

  template <class R>
  [[gnu::target("avx2")]] static std::uint64_t at_least(R const* block, bits_t<R> t) noexcept {
    std::uint64_t mask = 0;
    if constexpr (sizeof(R) == 4) {
      __m256i const below = _mm256_set1_epi32(static_cast<int>(t) - 1);
      __m256i const strip = _mm256_set1_epi32(0x7fffffff);
      for (std::size_t i = 0; i < block_size<R>; i += 8) {
        __m256i const m = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(block + i)), strip);
        auto const bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(m, below))));
        mask |= std::uint64_t{bits} << i;
      }
    } else {
      __m256i const below = _mm256_set1_epi64x(static_cast<long long>(t) - 1);
      __m256i const strip = _mm256_set1_epi64x(0x7fffffffffffffffLL);
      for (std::size_t i = 0; i < block_size<R>; i += 4) {
        __m256i const m = _mm256_and_si256(_mm256_castpd_si256(_mm256_loadu_pd(block + i)), strip);
        auto const bits = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(m, below))));
        mask |= std::uint64_t{bits} << i;
      }
    }
    return mask;
  }
};

struct avx512_ops : portable_ops {
  template <class R>
  [[gnu::target("avx512f")]] static void stream(R* to, R const* block) noexcept {
    for (std::size_t i = 0; i < block_size<R>; i += 64 / sizeof(R)) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(block + i));
    }
  }

  template <class R>
  [[gnu::target("avx512f")]] static std::uint64_t at_least_each(R const* block, bits_t<R> const* limits) noexcept {
    std::uint64_t mask = 0;
    if constexpr (sizeof(R) == 4) {
      __m512i const strip = _mm512_set1_epi32(0x7fffffff);
      for (std::size_t i = 0; i < block_size<R>; i += 16) {
        __m512i const m = _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(block + i)), strip);
        mask |= std::uint64_t{_mm512_cmpge_epi32_mask(m, _mm512_loadu_si512(limits + i))} << i;
      }
    } else {
      __m512i const strip = _mm512_set1_epi64(0x7fffffffffffffffLL);
      for (std::size_t i = 0; i < block_size<R>; i += 8) {
        __m512i const m = _mm512_and_si512(_mm512_castpd_si512(_mm512_loadu_pd(block + i)), strip);
        mask |= std::uint64_t{_mm512_cmpge_epi64_mask(m, _mm512_loadu_si512(limits + i))} << i;
      }
    }
    return mask;
  }

  template <class R>
  [[gnu::target("avx512f")]] static std::uint64_t at_least(R const* block, bits_t<R> t) noexcept {
    std::uint64_t mask = 0;
    if constexpr (sizeof(R) == 4) {
      __m512i const least = _mm512_set1_epi32(static_cast<int>(t));
      __m512i const strip = _mm512_set1_epi32(0x7fffffff);
      for (std::size_t i = 0; i < block_size<R>; i += 16) {
        __m512i const m = _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(block + i)), strip);
        mask |= std::uint64_t{_mm512_cmpge_epi32_mask(m, least)} << i;
      }
    } else {
      __m512i const least = _mm512_set1_epi64(static_cast<long long>(t));
      __m512i const strip = _mm512_set1_epi64(0x7fffffffffffffffLL);
      for (std::size_t i = 0; i < block_size<R>; i += 8) {
        __m512i const m = _mm512_and_si512(_mm512_castpd_si512(_mm512_loadu_pd(block + i)), strip);
        mask |= std::uint64_t{_mm512_cmpge_epi64_mask(m, least)} << i;
      }
    }
    return mask;
  }

  template <class R, class I>
  static void keep_ranked(std::uint32_t const* positions, R const* values, std::make_signed_t<bits_t<R>> const* before,
                          std::size_t n, std::size_t k, std::size_t begin, I* indices, R* to_values) noexcept {
    if constexpr (sizeof(R) == 4 && sizeof(I) == 4) {
      keep_ranked_lanes(positions, values, before, n, k, begin, indices, to_values);
    } else {
      portable_ops::keep_ranked(positions, values, before, n, k, begin, indices, to_values);
    }
  }

  /// Without a branch: in a short row, whether a vector holds an entry is hard to foresee.
  template <class R>
  [[gnu::target("avx512f,avx512vl,popcnt")]] static std::size_t positions(R const* block, bits_t<R> t, std::size_t n,
                                                                          std::uint32_t first,
                                                                          std::uint32_t* out) noexcept {
    return positions_of(at_least(block, t) & low_bits(n), first, out);
  }
  template <class R>
  [[gnu::target("avx512f,avx512vl,popcnt")]] static std::size_t positions_each(R const* block, bits_t<R> const* limits,
                                                                               std::size_t n, std::uint32_t first,
                                                                               std::uint32_t* out) noexcept {
    return positions_of(at_least_each(block, limits) & low_bits(n), first, out);
  }
  [[gnu::target("avx512f,avx512vl,popcnt")]] static std::size_t positions_of(std::uint64_t mask, std::uint32_t first,
                                                                             std::uint32_t* out) noexcept {
    std::size_t n = 0;
    __m512i at = _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                  _mm512_set1_epi32(static_cast<int>(first)));
    for (int i = 0; i < 64; i += 16) {
      auto const here = static_cast<__mmask16>(mask >> i);
      _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi32(here, at));
      n += static_cast<std::size_t>(__builtin_popcount(here));
      at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
    }
    return n;
  }

  template <class R, class I>
  static std::size_t append(R const* block, std::uint64_t mask, std::size_t first, I* indices, R* values) noexcept {
    if constexpr (sizeof(R) == 4 && sizeof(I) == 4) {
      return compress(block, mask, first, indices, values);
    } else {
      return portable_ops::append(block, mask, first, indices, values);
    }
  }

  template <class R, class I>
  static std::size_t compact(I const* indices, R const* values, std::size_t n, bits_t<R> bits, std::size_t& ties,
                             I* to_indices, R* to_values, std::size_t& used, std::size_t room) noexcept {
    if constexpr (sizeof(R) == 4 && sizeof(I) == 4) {
      return compact_lanes(indices, values, n, bits, ties, to_indices, to_values, used, room);
    } else {
      return 0;
    }
  }

 private:
  [[gnu::target("avx512f,popcnt")]] static void keep_ranked_lanes(std::uint32_t const* positions, float const* values,
                                                                  std::int32_t const* before, std::size_t n,
                                                                  std::size_t k, std::size_t begin,
                                                                  std::uint32_t* indices, float* to_values) noexcept {
    __m512i const base = _mm512_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(begin)));
    __m512i const limit = _mm512_set1_epi32(static_cast<int>(k));
    std::size_t used = 0;
    for (std::size_t i = 0; i < n; i += 16) {
      auto const valid = static_cast<__mmask16>(low_bits(n - i));
      __mmask16 const keep = _mm512_mask_cmplt_epi32_mask(valid, _mm512_loadu_si512(before + i), limit);
      __m512i const index = _mm512_add_epi32(_mm512_loadu_si512(positions + i), base);
      _mm512_storeu_si512(indices + used, _mm512_maskz_compress_epi32(keep, index));
      _mm512_storeu_ps(to_values + used, _mm512_maskz_compress_ps(keep, _mm512_loadu_ps(values + i)));
      used += static_cast<std::size_t>(__builtin_popcount(keep));
    }
  }

  [[gnu::target("avx512f,popcnt")]] static std::size_t compact_lanes(std::uint32_t const* indices, float const* values,
                                                                     std::size_t n, std::uint32_t bits,
                                                                     std::size_t& ties, std::uint32_t* to_indices,
                                                                     float* to_values, std::size_t& used,
                                                                     std::size_t room) noexcept {
    __m512i const strip = _mm512_set1_epi32(0x7fffffff);
    __m512i const edge = _mm512_set1_epi32(static_cast<int>(bits));
    std::size_t out = used;
    std::size_t at = 0;
    for (; at + 16 <= n && out + 16 <= room; at += 16) {
      __m512 const x = _mm512_loadu_ps(values + at);
      __m512i const m = _mm512_and_si512(_mm512_castps_si512(x), strip);
      unsigned keep = _mm512_cmpgt_epi32_mask(m, edge);
      unsigned equal = _mm512_cmpeq_epi32_mask(m, edge);
      for (; equal != 0 && ties != 0; equal &= equal - 1, --ties) keep |= equal & (0U - equal);
      auto const lanes = static_cast<__mmask16>(keep);
      __m512i const i = _mm512_loadu_si512(indices + at);
      _mm512_storeu_si512(to_indices + out, _mm512_maskz_compress_epi32(lanes, i));
      _mm512_storeu_ps(to_values + out, _mm512_maskz_compress_ps(lanes, x));
      out += static_cast<std::size_t>(__builtin_popcount(keep));
    }
    used = out;
    return at;
  }

  [[gnu::target("avx512f,popcnt")]] static std::size_t compress(float const* block, std::uint64_t mask,
                                                                std::size_t first, std::uint32_t* indices,
                                                                float* values) noexcept {
    std::size_t n = 0;
    __m512i const lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (std::size_t i = 0; i < block_size<float>; i += 16) {
      auto const here = static_cast<__mmask16>(mask >> i);
      __m512i const at = _mm512_add_epi32(lanes,
                                          _mm512_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(first + i))));
      _mm512_storeu_si512(indices + n, _mm512_maskz_compress_epi32(here, at));
      _mm512_storeu_ps(values + n, _mm512_maskz_compress_ps(here, _mm512_loadu_ps(block + i)));
      n += static_cast<std::size_t>(__builtin_popcount(here));
    }
    return n;
  }
};
#endif

}  // namespace detail
}  // namespace topsum

#endif
