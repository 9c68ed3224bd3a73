// SPDX-License-Identifier: BSL-1.0
/// \file
/// The fused pass of the host backend: evaluates a source block by block and hands each block to a sink.
#ifndef TOPSUM_DETAIL_HOST_PASS_HPP
#define TOPSUM_DETAIL_HOST_PASS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_dispatch.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_memory.hpp>

namespace topsum::detail {

/// How far ahead of the pass memory is fetched, in bytes.
inline constexpr std::size_t prefetch_distance = 3072;

/// Fetches the lines of `bytes` that lie `prefetch_distance` bytes behind `block`; any address will do.
[[gnu::always_inline]] inline void prefetch_block(void const* block, std::size_t bytes) noexcept {
#if defined(__GNUC__) || defined(__clang__)
  auto const from = reinterpret_cast<std::uintptr_t>(block) + prefetch_distance;
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<void const*>(from + i));
#else
  static_cast<void>(block);
  static_cast<void>(bytes);
#endif
}

/// The largest magnitude of a block.
template <class R>
[[gnu::always_inline]] inline bits_t<R> largest_magnitude(R const* block) noexcept {
  using signed_bits = std::make_signed_t<bits_t<R>>;
  signed_bits most = 0;
  for (std::size_t i = 0; i < block_size<R>; ++i) {
    auto const m = static_cast<signed_bits>(magnitude(block[i]));
    most = m > most ? m : most;
  }
  return static_cast<bits_t<R>>(most);
}

/// One block of new states; row `accumulator` doubles as the accumulators.
template <class T, class Formula>
using state_block =
    std::array<std::array<wide_t<T>, block_size<wide_t<T>>>, (Formula::states > 0 ? Formula::states : 1)>;

/// A block with something that is not finite: restores its states and records the fault. Returns a bit for each such element.
template <class B, class T, class Formula>
[[gnu::noinline]] inline std::uint64_t restore_nonfinite(source<B, T, Formula> const& from, std::size_t first,
                                                         state_block<T, Formula>& next) noexcept {
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < block_size<wide_t<T>>; ++i) {
    if (is_finite(next[Formula::accumulator][i])) continue;
    bad |= std::uint64_t{1} << i;
    nonfinite_record& record = from.fault[0];
    record.count += 1;
    record.first = std::min(record.first, static_cast<std::uint64_t>(first + i));
    for (std::size_t j = 0; j < Formula::states; ++j) next[j][i] = from.states_in[j][first + i];
  }
  return bad;
}

/// Evaluates elements [begin, end) once. For each block the sink gets
/// `take<Ops>(accumulators, first, n, largest)`: a whole block, zeros behind n; and before it, where there are any,
/// `nonfinite(first, bits)`.
///
/// `Stream`: large states that are not updated in place go past the caches; the sink must not want to read them again soon.
template <class Ops, bool Stream, class B, class T, class Formula, class Sink>
[[gnu::always_inline]] inline void pass_body(source<B, T, Formula> const& from, std::size_t begin, std::size_t end,
                                             Sink& sink) {
  using R = wide_t<T>;
  constexpr std::size_t block = block_size<R>;
  constexpr std::size_t states = Formula::states;
  Formula const formula = from.formula;
  T const* const gradient = from.gradient.data();
  std::array<R const*, states> in;
  std::array<R*, states> out;
  for (std::size_t j = 0; j < states; ++j) {
    in[j] = from.states_in[j].data();
    out[j] = from.states_out[j].data();
  }
  bool around = false;
  if constexpr (Stream && states > 0) around = out[0] != in[0] && from.size() * sizeof(R) >= streamed_fill_bytes;
  alignas(64) state_block<T, Formula> next;
  auto& accumulators = next[Formula::accumulator];

  for (std::size_t first = begin; first < end; first += block) {
    std::size_t const n = std::min(block, end - first);
    if (n == block) {
      prefetch_block(gradient + first, block * sizeof(T));
      for (std::size_t j = 0; j < states; ++j) prefetch_block(in[j] + first, block * sizeof(R));
      for (std::size_t i = 0; i < block; ++i) {
        std::array<R, states> state;
        for (std::size_t j = 0; j < states; ++j) state[j] = in[j][first + i];
        R const accumulator = formula(gradient[first + i], state);
        if constexpr (states == 0) accumulators[i] = accumulator;
        for (std::size_t j = 0; j < states; ++j) next[j][i] = state[j];
      }
    } else {
      accumulators.fill(R{0});
      for (std::size_t i = 0; i < n; ++i) {
        std::array<R, states> state;
        for (std::size_t j = 0; j < states; ++j) state[j] = in[j][first + i];
        R const accumulator = formula(gradient[first + i], state);
        if constexpr (states == 0) accumulators[i] = accumulator;
        for (std::size_t j = 0; j < states; ++j) next[j][i] = state[j];
      }
    }
    bits_t<R> largest = largest_magnitude(accumulators.data());
    std::uint64_t bad = 0;
    if (largest >= nonfinite_magnitude<R>) [[unlikely]] {
      bad = restore_nonfinite(from, first, next);
      sink.nonfinite(first, bad);
    }
    for (std::size_t j = 0; j < states; ++j) {
      if (around && n == block && reinterpret_cast<std::uintptr_t>(out[j] + first) % 64 == 0) {
        Ops::stream(out[j] + first, next[j].data());
      } else if (n == block) {
        std::memcpy(out[j] + first, next[j].data(), block * sizeof(R));
      } else {
        std::memcpy(out[j] + first, next[j].data(), n * sizeof(R));
      }
    }
    if (bad != 0) [[unlikely]] {
      for (; bad != 0; bad &= bad - 1) accumulators[static_cast<std::size_t>(std::countr_zero(bad))] = R{0};
      largest = largest_magnitude(accumulators.data());
    }
    sink.template take<Ops>(accumulators.data(), first, n, largest);
  }
  if (around) Ops::streamed();
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // else the vectoriser fuses products with sums, even behind a barrier
#endif

/// `f(i, s[i]...)` for each i below n, in blocks: a loop of known length vectorises at every level of optimisation.
template <class F, class... T>
void run_each(std::size_t n, F& f, T*... s) {
  constexpr std::size_t block = 64;
  std::size_t first = 0;
  for (; n - first >= block; first += block) {
    for (std::size_t i = first; i < first + block; ++i) f(i, s[i]...);
  }
  for (; first < n; ++first) f(first, s[first]...);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

struct pass_dispatch {
  template <class Ops, class... A>
  [[gnu::always_inline]] static void run(A&... arguments) {
    pass_body<Ops, true>(arguments...);
  }
};

/// The pass in the instructions of `set`, which the CPU must have.
template <class B, class T, class Formula, class Sink>
void run_pass(instruction_set set, source<B, T, Formula> const& from, std::size_t begin, std::size_t end, Sink& sink) {
  if (begin < end) run_with<pass_dispatch>(set, from, begin, end, sink);
}

/// A sink that wants nothing: the states are updated.
struct no_sink {
  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops, class R>
  [[gnu::always_inline]] void take(R const*, std::size_t, std::size_t, bits_t<R>) noexcept {}
};

/// A sink that writes the accumulators out.
template <class R>
struct dense_sink {
  R* out;
  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R>) noexcept {
    if (n == block_size<R>) {
      std::memcpy(out + first, block, block_size<R> * sizeof(R));
    } else {
      std::memcpy(out + first, block, n * sizeof(R));
    }
  }
};

}  // namespace topsum::detail

#endif
