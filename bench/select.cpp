// SPDX-License-Identifier: BSL-1.0
/// \file
/// What selection costs on one core, in units of the loop that no error feedback can avoid: `residual[i] += gradient[i]`.
///
///     select [log2 of n = 24] [repetitions = 9]
///
/// Every repetition times the loop and the verbs one after another, each on a gradient that was not in cache, and prints
/// the median over repetitions of (verb / loop of the same repetition), with the smallest and largest.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>

namespace {

using topsum::host;
using topsum::piece;

/// Numbers with the look of gradients: bell-shaped, with a scale of its own every 2^16 values.
template <class T>
void fill_gradient(std::span<T> out, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  float scale = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % 65536 == 0) scale = std::exp2(static_cast<float>(static_cast<int>(i / 65536 * 2654435761U % 7)) - 3.0F);
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    auto const a = static_cast<float>(state >> 48), b = static_cast<float>((state >> 32) & 0xffffU);
    auto const c = static_cast<float>((state >> 16) & 0xffffU), d = static_cast<float>(state & 0xffffU);
    out[i] = topsum::from_wide<T>(scale * ((a - b) + (c - d)) / 65536.0F);
  }
}

/// The tensors of ResNet-50: 161 of them, 25.6 million values.
std::vector<std::size_t> resnet50() {
  std::vector<std::size_t> sizes;
  auto const conv = [&](std::size_t in, std::size_t out, std::size_t window) {
    sizes.insert(sizes.end(), {in * out * window, out, out});
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
  sizes.insert(sizes.end(), {2048 * 1000, 1000});
  return sizes;
}

template <class T>
[[gnu::noinline]] void floor_loop(float* residual, T const* gradient, std::size_t n) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i) residual[i] += topsum::to_wide(gradient[i]);
}

/// The same loop with the library's prefetch and vectors: the better of the two is the floor.
template <class T>
void fetched_loop(host& backend, topsum::source<host, T, topsum::decayed_residual_sum<T>> const& from) {
  std::size_t none = 0;
  backend.select_at_least(from, std::span<piece const>{}, std::span<float const>{},
                          topsum::entries_view<host, float, std::uint32_t>{{}, {}, {&none, 1}},
                          std::span<std::size_t>{});
}

double seconds(std::function<void()> const& run) {
  auto const start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<piece> cut_in_pieces(std::vector<std::size_t> const& sizes, double density) {
  std::vector<piece> pieces;
  std::size_t begin = 0;
  for (std::size_t size : sizes) {
    auto const k = std::clamp<std::size_t>(static_cast<std::size_t>(static_cast<double>(size) * density), 1, size);
    pieces.push_back({begin, size, k, k});
    begin += size;
  }
  return pieces;
}

struct row {
  std::string what;
  std::vector<double> ratios;
};

/// Gradients of T, all else in float.
template <class T>
void bench(std::string const& title, std::vector<std::size_t> const& sizes, int repetitions, host backend,
           bool others) {
  std::size_t const n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  constexpr std::size_t gradients = 3;
  std::vector<topsum::host_buffer<T>> pool;
  for (std::size_t i = 0; i < gradients; ++i) {
    pool.emplace_back(n);
    fill_gradient<T>(pool.back().view(), i + 1);
  }
  auto memory = backend.allocate<float>(n);
  std::span<float> const residual = memory.view();
  std::fill(residual.begin(), residual.end(), 0.0F);
  topsum::entries<host, float, std::uint32_t> selected{backend, n / 50 + sizes.size()};
  auto const out = selected.view();
  topsum::nonfinite_record fault;
  std::size_t turn = 0;
  auto const next = [&] {
    return topsum::source<host, T, topsum::decayed_residual_sum<T>>{
        pool[turn++ % gradients].view(), {std::span<float const>{residual}}, {residual}, {}, {&fault, 1}};
  };

  std::vector<row> rows;
  for (double const density : {0.01, 0.001}) {
    std::vector<piece> const pieces = cut_in_pieces(sizes, density);
    backend.reserve_selection<float, std::uint32_t>(pieces);
    std::vector<float> kth(pieces.size());
    std::vector<float> thresholds(pieces.size());
    std::vector<std::size_t> counts(pieces.size());
    std::size_t const first = rows.size();
    std::string const percent = density == 0.01 ? " 1 %" : " 0.1 %";
    rows.push_back({"select_top_k, cold," + percent, {}});
    rows.push_back({"select_at_least," + percent, {}});
    rows.push_back({"clearing what was selected," + percent, {}});
    if (others && density == 0.01) rows.push_back({"std::nth_element on a copy," + percent, {}});
    if (others && density == 0.01) rows.push_back({"floor with prefetch / floor", {}});
    std::vector<float> copy(others ? n : 0);
    for (int r = -1; r < repetitions; ++r) {
      std::vector<double> times;
      auto from = next();
      double const plain = seconds([&] { floor_loop(residual.data(), from.gradient.data(), n); });
      from = next();
      double const fetched = seconds([&] { fetched_loop(backend, from); });
      double const floor = std::min(plain, fetched);
      from = next();
      times.push_back(
          seconds([&] { backend.select_top_k(from, std::span<piece const>{pieces}, out, std::span<float>{kth}); }));
      double const clearing = seconds([&] { backend.subtract(out, residual); });
      thresholds = kth;
      from = next();
      times.push_back(seconds([&] {
        backend.select_at_least(from, std::span<piece const>{pieces}, std::span<float const>{thresholds}, out,
                                std::span<std::size_t>{counts});
      }));
      times.push_back(clearing);
      backend.subtract(out, residual);
      if (others && density == 0.01) {
        std::size_t const k = pieces[0].count;
        times.push_back(seconds([&] {
          for (std::size_t i = 0; i < n; ++i) copy[i] = std::abs(residual[i]);
          std::nth_element(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(k), copy.end(), std::greater<>{});
        }));
        times.push_back(fetched * floor / plain);
      }
      if (r < 0) continue;  // the first warms pages up
      for (std::size_t i = 0; i < times.size(); ++i) rows[first + i].ratios.push_back(times[i] / floor);
    }
  }
  std::printf("%s: n = %zu, %zu pieces; times / (residual += gradient)\n", title.c_str(), n, sizes.size());
  for (row& line : rows) {
    std::sort(line.ratios.begin(), line.ratios.end());
    std::printf("  %-36s %6.2f   (%.2f .. %.2f)\n", line.what.c_str(), line.ratios[line.ratios.size() / 2],
                line.ratios.front(), line.ratios.back());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int const log2_n = argc > 1 ? std::atoi(argv[1]) : 24;
  int const repetitions = argc > 2 ? std::max(1, std::atoi(argv[2])) : 9;
  if (log2_n < 10 || log2_n > 30) {
    std::fprintf(stderr, "select: log2 of n must lie in 10 .. 30\n");
    return 2;
  }
  std::size_t const n = std::size_t{1} << log2_n;
  bench<float>("global", {n}, repetitions, host{}, true);
  bench<float>("global, avx2", {n}, repetitions, host{host::instruction_set::avx2}, false);
  bench<float>("global, portable", {n}, repetitions, host{host::instruction_set::portable}, false);
  bench<topsum::half>("global, half", {n}, repetitions, host{}, false);
  bench<topsum::half>("global, half, avx2", {n}, repetitions, host{host::instruction_set::avx2}, false);
  bench<topsum::bfloat16>("global, bfloat16", {n}, repetitions, host{}, false);
  bench<float>("layer-wise, ResNet-50", resnet50(), repetitions, host{}, false);
  bench<float>("rows of 4096", std::vector<std::size_t>(n / 4096, 4096), repetitions, host{}, false);
  bench<float>("rows of 1024", std::vector<std::size_t>(n / 1024, 1024), repetitions, host{}, false);
}
