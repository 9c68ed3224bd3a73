// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exact selection of the k largest of a piece in one pass on the host: a bound from a small sample, a pass that keeps
/// what is above it under a streaming cap, and a look back only when too few came.
#ifndef TOPSUM_DETAIL_HOST_TOP_K_HPP
#define TOPSUM_DETAIL_HOST_TOP_K_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <topsum/core/piece.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rescan.hpp>

namespace topsum::detail {

/// Memory of a selection that guesses.
struct top_k_scratch {
  static constexpr std::size_t remembered_faults = 1024;
  static constexpr std::size_t buckets = 4096;

  std::array<std::uint64_t, remembered_faults> faults;
  std::array<std::uint32_t, buckets> histogram;
  std::uint64_t second_passes = 0;  ///< guesses that were too high
};

/// The rank in a sample of `m` of `n` below which the k-th of all lies almost surely.
[[nodiscard]] inline std::size_t sample_rank(std::size_t k, std::size_t n, std::size_t m) noexcept {
  double const expected = static_cast<double>(k) / static_cast<double>(n) * static_cast<double>(m);
  return static_cast<std::size_t>(expected + 4.0 * std::sqrt(expected)) + 2;
}

/// A guess of a magnitude that about k elements of [begin, begin + size) reach, some more than fewer. Reads a jittered sample of
/// cache lines and stores nothing; a wrong guess costs time only.
template <class B, class T, class Formula>
[[nodiscard]] bits_t<wide_t<T>> guess_threshold(source<B, T, Formula> const& from, std::size_t begin, std::size_t size,
                                                std::size_t k, top_k_scratch& scratch) noexcept {
  using R = wide_t<T>;
  constexpr std::size_t line = 64 / sizeof(R);
  constexpr int shift = magnitude_bits<float> - 12;
  std::size_t const lines = std::clamp<std::size_t>(size / 64, 1024, 32768) / line;
  std::size_t const m = lines * line;
  std::size_t const wanted = sample_rank(k, size, m);
  if (size < 2 * m || wanted >= m) return 0;
  scratch.histogram.fill(0);
  Formula const formula = from.formula;
  std::size_t const stride = size / lines;  // at least 2 * line
  auto const place = [&](std::size_t l) {   // a line at a jittered stride
    std::uint64_t const random = (l + 1) * 0x9e3779b97f4a7c15ULL;
    return begin + l * stride + static_cast<std::size_t>((random ^ random >> 29) % (stride - line + 1));
  };
  for (std::size_t l = 0; l < lines; ++l) {
    std::size_t const first = place(l);
#if defined(__GNUC__)
    std::size_t const later = place(std::min(l + 24, lines - 1));
    __builtin_prefetch(from.gradient.data() + later);
    __builtin_prefetch(from.gradient.data() + later + line - 1);
    for (std::size_t j = 0; j < Formula::states; ++j) {
      __builtin_prefetch(from.states_in[j].data() + later);
      __builtin_prefetch(from.states_in[j].data() + later + line - 1);
    }
#endif
    for (std::size_t i = first; i < first + line; ++i) {
      std::array<R, Formula::states> state;
      for (std::size_t j = 0; j < Formula::states; ++j) state[j] = from.states_in[j][i];
      R const x = formula(from.gradient[i], state);
      ++scratch.histogram[magnitude(static_cast<float>(x)) >> shift];
    }
  }
  std::size_t bucket = top_k_scratch::buckets;
  for (std::size_t seen = 0; seen < wanted && bucket > 0;) seen += scratch.histogram[--bucket];
  auto const low = static_cast<bits_t<float>>(static_cast<bits_t<float>>(bucket) << shift);
  if (low >= nonfinite_magnitude<float>) return 0;
  return magnitude(static_cast<R>(from_magnitude<float>(low)));
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // a look back must round as the pass did
#endif

/// Sink of the pass of `top_k`. Remembers where elements were not finite, since a look back must know.
template <class B, class T, class Formula, class I>
struct top_k_sink {
  using R = wide_t<T>;

  source<B, T, Formula> const& from;
  candidate_list<R, I>& list;
  top_k_scratch& scratch;
  std::size_t begin;
  std::size_t faults = 0;
  bool complete = false;  ///< the list holds the first `keep` of all that was seen

  void nonfinite(std::size_t first, std::uint64_t bad) noexcept {
    if (complete || list.was_cut) return;
    if (faults + block_size<R> > scratch.faults.size()) {
      look_back(first);
      return;
    }
    for (; bad != 0; bad &= bad - 1) scratch.faults[faults++] = first + static_cast<std::size_t>(std::countr_zero(bad));
  }

  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R> largest) noexcept {
    if (largest >= list.threshold) list.template append<Ops>(block, first, low_bits(n));
  }

  /// Too few came from [begin, end): selects from the stored accumulators again, without a guess.
  [[gnu::noinline]] void look_back(std::size_t end) noexcept {
    complete = true;
    ++scratch.second_passes;
    list.used = 0;
    list.threshold = 0;
    std::size_t next_fault = 0;
    std::array<R, block_size<R>> block;
    for (std::size_t first = begin; first < end; first += block.size()) {
      std::size_t const n = std::min(block.size(), end - first);
      block.fill(R{0});
      for (std::size_t i = 0; i < n; ++i) block[i] = evaluated(from, first + i);
      for (; next_fault < faults && scratch.faults[next_fault] < first + n; ++next_fault) {
        block[static_cast<std::size_t>(scratch.faults[next_fault]) - first] = R{0};
      }
      if (largest_magnitude(block.data()) >= list.threshold)
        list.template append<portable_ops>(block.data(), first, low_bits(n));
    }
  }
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/// Selects the k largest of [begin, begin + size), 0 < k <= size, to the front of a list. Returns the k-th magnitude.
template <class B, class T, class Formula, class I>
bits_t<wide_t<T>> top_k_of_run(source<B, T, Formula> const& from, std::size_t begin, std::size_t size, std::size_t k,
                               candidate_list<wide_t<T>, I>& list, top_k_scratch& scratch, I* indices,
                               wide_t<T>* values) {
  list.clear(k, guess_threshold(from, begin, size, k, scratch));
  top_k_sink<B, T, Formula, I> sink{from, list, scratch, begin};
  sink.complete = list.threshold == 0;
  run_pass(list.set, from, begin, begin + size, sink);
  if (list.used < k) sink.look_back(begin + size);
  return list.extract(k, indices, values);
}

}  // namespace topsum::detail

#endif
