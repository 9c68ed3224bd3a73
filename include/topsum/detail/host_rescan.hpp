// SPDX-License-Identifier: BSL-1.0
/// \file
/// Reading elements again that a pass has just evaluated and left in the cache, and the maxima that the pass collects to know
/// what to look for.
#ifndef TOPSUM_DETAIL_HOST_RESCAN_HPP
#define TOPSUM_DETAIL_HOST_RESCAN_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_pass.hpp>

namespace topsum::detail {

/// Where the elements of a stretch were not finite. They count as zero, and their states do not say so.
class fault_masks {
 public:
  /// Nothing was seen yet. Costs nothing.
  void clear() noexcept { any_ = false; }
  void record(std::size_t block, std::uint64_t bad) noexcept {
    if (!any_) masks_.fill(0);
    any_ = true;
    masks_[block] = bad;
  }
  [[nodiscard]] bool any() const noexcept { return any_; }
  [[nodiscard]] std::uint64_t of(std::size_t block) const noexcept { return any_ ? masks_[block] : 0; }

 private:
  bool any_ = false;
  std::array<std::uint64_t, stretch / block_size<double>> masks_;
};

/// Sink: the largest magnitude of each of `period` interleaved groups of a stretch: those `period` apart share one.
template <class R>
struct maxima_sink {
  R* most;             ///< zeroed before, unless `once`
  std::size_t period;  ///< whole blocks
  std::size_t begin;
  fault_masks& faults;
  bool once = false;  ///< a stretch of no more than a period: nothing is compared
  std::size_t at = 0;

  void nonfinite(std::size_t first, std::uint64_t bad) noexcept { faults.record((first - begin) / block_size<R>, bad); }

  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t, std::size_t, bits_t<R>) noexcept {
    using signed_bits = std::make_signed_t<bits_t<R>>;
    R* const group = most + at;
    for (std::size_t i = 0; i < block_size<R>; ++i) {
      auto const m = static_cast<signed_bits>(magnitude(block[i]));
      auto const old = once ? signed_bits{0} : std::bit_cast<signed_bits>(group[i]);
      group[i] = std::bit_cast<R>(m > old ? m : old);
    }
    at += block_size<R>;
    if (at == period) at = 0;
  }
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // what is evaluated again must round as it did
#endif

/// Element i again.
template <class B, class T, class Formula>
[[nodiscard]] wide_t<T> evaluated(source<B, T, Formula> const& from, std::size_t i) noexcept {
  using R = wide_t<T>;
  if constexpr (Formula::states == 0) {
    std::array<R, 0> none;
    R const x = from.formula(from.gradient[i], none);
    return is_finite(x) ? x : R{0};
  } else {
    return from.states_out[Formula::accumulator][i];
  }
}

/// Elements of a stretch again, at `n` positions from its begin.
template <class B, class T, class Formula>
[[gnu::always_inline]] inline void gather_again(source<B, T, Formula> const& from, std::size_t begin,
                                                fault_masks const& faults, std::uint32_t const* positions,
                                                std::size_t n, wide_t<T>* values) noexcept {
  constexpr std::size_t block = block_size<wide_t<T>>;
  for (std::size_t i = 0; i < n; ++i) values[i] = evaluated(from, begin + positions[i]);
  if (!faults.any()) return;
  for (std::size_t i = 0; i < n; ++i) {
    if ((faults.of(positions[i] / block) >> positions[i] % block & 1U) != 0) values[i] = 0;
  }
}

/// A block again, zeros behind `n`.
template <class B, class T, class Formula>
[[gnu::noinline]] void reload(source<B, T, Formula> const& from, std::size_t first, std::size_t n, std::uint64_t bad,
                              wide_t<T>* block) noexcept {
  for (std::size_t i = 0; i < n; ++i) block[i] = evaluated(from, first + i);
  std::fill(block + n, block + block_size<wide_t<T>>, wide_t<T>{0});
  for (; bad != 0; bad &= bad - 1) block[std::countr_zero(bad)] = 0;
}

/// Hands [begin, end), evaluated before, to the sink again, whole blocks with zeros behind the end: `retake<Ops>(block, first, n)`.
template <class Ops, class B, class T, class Formula, class Sink>
[[gnu::always_inline]] inline void rescan_body(source<B, T, Formula> const& from, std::size_t begin, std::size_t end,
                                               fault_masks const& faults, Sink& sink) noexcept {
  using R = wide_t<T>;
  constexpr std::size_t size = block_size<R>;
  alignas(64) std::array<R, size> copy;
  for (std::size_t first = begin; first < end; first += size) {
    std::size_t const n = std::min(size, end - first);
    R const* block = copy.data();
    if constexpr (Formula::states != 0) {
      if (n == size && !faults.any()) block = from.states_out[Formula::accumulator].data() + first;
    }
    if (block == copy.data()) reload(from, first, n, faults.of((first - begin) / size), copy.data());
    sink.template retake<Ops>(block, first, n);
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace topsum::detail

#endif
