// SPDX-License-Identifier: BSL-1.0
// Gradients for bench/select, and the loop that it measures against.
#ifndef TOPSUM_BENCH_SELECT_INPUTS_HPP
#define TOPSUM_BENCH_SELECT_INPUTS_HPP

#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/value.hpp>
#include <topsum/layout.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {

template <class T>
inline constexpr char const* type_name = "float";
template <>
inline constexpr char const* type_name<double> = "double";
template <>
inline constexpr char const* type_name<topsum::half> = "half";
template <>
inline constexpr char const* type_name<topsum::bfloat16> = "bfloat16";

/// Gradients, a fresh one each time.
template <class T>
class gradients {
 public:
  using fill = std::function<void(std::size_t turn, std::span<T> out)>;

  /// `renew` fills a buffer of n values; `kept` of them are made once and used in turn, or each is made anew for kept = 0.
  gradients(std::size_t n, std::size_t kept, fill renew) : renew_{std::move(renew)}, kept_{kept} {
    for (std::size_t i = 0; i < std::max<std::size_t>(kept, 2); ++i) {
      pool_.emplace_back(n);
      renew_(i, pool_.back().view());
    }
  }
  [[nodiscard]] std::size_t size() const { return pool_[0].size(); }
  std::span<T const> next() {
    auto& one = pool_[turn_ % pool_.size()];
    if (kept_ == 0) renew_(turn_, one.view());
    ++turn_;
    return one.view();
  }

 private:
  fill renew_;
  std::size_t kept_;
  std::vector<topsum::host_buffer<T>> pool_;
  std::size_t turn_ = 0;
};

template <class T>
gradients<T> laplace_gradients(std::size_t n) {
  return {n, 3, [](std::size_t turn, std::span<T> out) {
            std::uint64_t state = (turn + 1) * 0x9e3779b97f4a7c15ULL;
            for (T& x : out) {
              state = state * 6364136223846793005ULL + 1442695040888963407ULL;
              double const unit = (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
              double const tail = -std::log(unit < 0.5 ? 2 * unit : 2 * unit - 1 + 1e-300);
              using R = topsum::wide_t<T>;
              x = topsum::from_wide<T>(static_cast<R>(unit < 0.5 ? -tail : tail) / 64);
            }
          }};
}

/// Worker 0's recorded gradients, one step after the other, tiled up to n. None where the file is not.
inline std::optional<gradients<float>> recorded_gradients(std::string const& kind, std::size_t n) {
  char const* const folder = std::getenv("TOPSUM_GRADIENTS");
  if (folder == nullptr) return std::nullopt;
  std::ifstream file{std::string{folder} + "/" + kind + ".bf16", std::ios::binary};
  if (!file) return std::nullopt;
  std::vector<char> bytes{std::istreambuf_iterator<char>{file}, {}};
  constexpr std::size_t steps = 64, workers = 2;
  std::size_t const size = bytes.size() / 2 / steps / workers;
  if (size == 0) return std::nullopt;
  return gradients<float>{n, 0, [bytes = std::move(bytes), size](std::size_t turn, std::span<float> out) {
                            std::size_t const first = turn % steps * workers * size;
                            for (std::size_t i = 0; i < out.size(); ++i) {
                              std::size_t const at = 2 * (first + i % size);
                              auto const low = static_cast<unsigned char>(bytes[at]);
                              auto const high = static_cast<unsigned char>(bytes[at + 1]);
                              out[i] = topsum::from_magnitude<float>(static_cast<std::uint32_t>(high) << 24 |
                                                                     static_cast<std::uint32_t>(low) << 16);
                            }
                          }};
}

/// The tensors of ResNet-50, 161 of them: as many of them as n has room for, over and over.
inline topsum::layout resnet50(std::size_t n) {
  std::vector<topsum::tensor> once;
  auto const conv = [&](std::size_t in, std::size_t out, std::size_t window) {
    once.push_back({"conv", {out, in, window}});
    once.push_back({"scale", {out}});
    once.push_back({"shift", {out}});
  };
  conv(3, 64, 49);
  std::size_t in = 64;
  std::size_t width = 64;
  for (int blocks : {3, 4, 6, 3}) {
    for (int b = 0; b < blocks; ++b) {
      conv(in, width, 1);
      conv(width, width, 9);
      conv(width, 4 * width, 1);
      if (b == 0) conv(in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  once.push_back({"fc", {1000, 2048}});
  once.push_back({"bias", {1000}});
  std::vector<topsum::tensor> tensors;
  std::size_t used = 0;
  for (std::size_t i = 0;; ++i) {
    topsum::tensor const& next = once[i % once.size()];
    std::size_t const size = topsum::layout{next}.size();
    if (used + size > n) break;
    tensors.push_back(next);
    used += size;
  }
  tensors.push_back({"rest", {n - used}});
  return topsum::layout{tensors};
}

/// residual += gradient, with a prefetch or without.
template <class T>
[[gnu::always_inline]] inline void floor_body(topsum::wide_t<T>* residual, T const* gradient, std::size_t n,
                                              bool prefetch) {
  constexpr std::size_t block = 64;
  constexpr std::size_t ahead = 768;
  for (std::size_t first = 0; first < n; first += block) {
    if (prefetch) {
      for (std::size_t i = 0; i < block; i += 64 / sizeof(T)) __builtin_prefetch(gradient + first + ahead + i);
      for (std::size_t i = 0; i < block; i += 64 / sizeof(*residual)) __builtin_prefetch(residual + first + ahead + i);
    }
    std::size_t const end = std::min(block, n - first);
    if (end == block) {
      for (std::size_t i = 0; i < block; ++i) residual[first + i] += topsum::to_wide(gradient[first + i]);
    } else {
      for (std::size_t i = 0; i < end; ++i) residual[first + i] += topsum::to_wide(gradient[first + i]);
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class T>
[[gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void floor_avx512(topsum::wide_t<T>* residual,
                                                                                       T const* gradient, std::size_t n,
                                                                                       bool prefetch) {
  if constexpr (std::same_as<T, topsum::half>) {  // in the CPU's own conversion
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) {
      if (prefetch && i % 32 == 0) __builtin_prefetch(gradient + i + 768);
      if (prefetch) __builtin_prefetch(residual + i + 768);
      __m256i const bits = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(gradient + i));
      _mm512_storeu_ps(residual + i, _mm512_add_ps(_mm512_loadu_ps(residual + i), _mm512_maskz_cvtph_ps(0xffff, bits)));
    }
    for (; i < n; ++i) residual[i] += topsum::to_wide(gradient[i]);
  } else {
    floor_body(residual, gradient, n, prefetch);
  }
}
template <class T>
[[gnu::noinline, gnu::target("avx2")]] void floor_avx2(topsum::wide_t<T>* residual, T const* gradient, std::size_t n,
                                                       bool prefetch) {
  floor_body(residual, gradient, n, prefetch);
}
#endif

/// The loop in the widest vectors of this CPU.
template <class T>
void floor_loop(std::span<topsum::wide_t<T>> residual, std::span<T const> gradient, bool prefetch) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return floor_avx512(residual.data(), gradient.data(), residual.size(), prefetch);
  if (__builtin_cpu_supports("avx2")) return floor_avx2(residual.data(), gradient.data(), residual.size(), prefetch);
#endif
  floor_body(residual.data(), gradient.data(), residual.size(), prefetch);
}

}  // namespace bench

#endif
