// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exact selection among entries on the host: the k-th magnitude by a radix walk, then one compaction in index order.
#ifndef TOPSUM_DETAIL_HOST_RADIX_HPP
#define TOPSUM_DETAIL_HOST_RADIX_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <topsum/core/value.hpp>
#include <topsum/detail/host_dispatch.hpp>
#include <topsum/detail/host_isa.hpp>

namespace topsum::detail {

/// Fixed scratch of a radix walk.
struct radix_scratch {
  static constexpr int digit_bits = 10;
  static constexpr std::size_t lanes = 4;   // neighbours often share a bin: counting in turns hides the wait
  static constexpr std::size_t few = 1024;  // so many values are sorted out by bisection
  std::array<std::array<std::size_t, std::size_t{1} << digit_bits>, lanes> bins;
  alignas(64) std::array<double, few> values;
  alignas(64) std::array<float, few> short_values;

  template <class R>
  [[nodiscard]] R* values_of() noexcept {
    if constexpr (sizeof(R) == 8) {
      return values.data();
    } else {
      return short_values.data();
    }
  }
};

/// Where a list is cut: entries above `bits` stay, and the first `ties` of those equal to it.
template <class R>
struct magnitude_cut {
  bits_t<R> bits;
  std::size_t ties;
};

/// Smallest and largest magnitude of values.
template <class R>
struct magnitude_range {
  bits_t<R> low;
  bits_t<R> high;
};

template <class R>
[[gnu::always_inline]] inline magnitude_range<R> range_of(R const* values, std::size_t n) noexcept {
  using signed_bits = std::make_signed_t<bits_t<R>>;  // magnitudes are positive: narrow vectors compare signed
  constexpr std::size_t block = block_size<R>;
  auto low = static_cast<signed_bits>(magnitude(values[0]));
  auto high = low;
  std::size_t at = 0;
  for (; at + block <= n; at += block) {
    for (std::size_t i = 0; i < block; ++i) {
      auto const m = static_cast<signed_bits>(magnitude(values[at + i]));
      low = m < low ? m : low;
      high = m > high ? m : high;
    }
  }
  for (; at < n; ++at) {
    auto const m = static_cast<signed_bits>(magnitude(values[at]));
    low = m < low ? m : low;
    high = m > high ? m : high;
  }
  return {static_cast<bits_t<R>>(low), static_cast<bits_t<R>>(high)};
}

/// How many of `n` values reach `t`. Whole blocks are read.
template <class Ops, class R>
[[gnu::always_inline]] inline std::size_t count_reaching(R const* values, std::size_t n, bits_t<R> t) noexcept {
  constexpr std::size_t block = block_size<R>;
  std::size_t count = 0;
  for (std::size_t at = 0; at < n; at += block) {
    std::uint64_t const valid = low_bits(std::min(block, n - at));
    count += static_cast<std::size_t>(std::popcount(Ops::at_least(values + at, t) & valid));
  }
  return count;
}

/// The cut that leaves k of a few values with magnitudes in `range`, 0 < k <= n, by bisection. Whole blocks are read.
template <class Ops, class R>
[[gnu::always_inline]] inline magnitude_cut<R> cut_of_few(R const* values, std::size_t n, std::size_t k,
                                                          magnitude_range<R> range) noexcept {
  while (range.low < range.high) {
    auto const middle = static_cast<bits_t<R>>(range.high - (range.high - range.low) / 2);
    std::size_t const count = count_reaching<Ops>(values, n, middle);
    if (count == k) {
      bits_t<R> least = range.high;
      for (std::size_t i = 0; i < n; ++i) {
        bits_t<R> const m = magnitude(values[i]);
        least = m >= middle && m < least ? m : least;
      }
      range.low = least;
      break;
    }
    if (count > k) {
      range.low = middle;
    } else {
      range.high = static_cast<bits_t<R>>(middle - 1);
    }
  }
  return {range.low, k - count_reaching<Ops>(values, n, static_cast<bits_t<R>>(range.low + 1))};
}

/// The cut that leaves exactly k of `n` values, 0 < k <= n.
template <class Ops, class R>
[[gnu::always_inline]] inline magnitude_cut<R> find_cut(R const* values, std::size_t n, std::size_t k,
                                                        radix_scratch& scratch) noexcept {
  using bits = bits_t<R>;
  constexpr std::size_t block = block_size<R>;
  R* const few = scratch.values_of<R>();
  magnitude_range<R> range = range_of(values, n);
  if (n <= radix_scratch::few) {
    std::memcpy(few, values, n * sizeof(R));
    return cut_of_few<Ops>(few, n, k, range);
  }
  for (;;) {
    auto const width = static_cast<bits>(range.high - range.low);
    if (width == 0) return {range.low, k};
    int const shift = std::max(0, static_cast<int>(std::bit_width(width)) - radix_scratch::digit_bits);
    auto const count = [&](std::size_t lane, R value) {
      auto const key = static_cast<bits>(magnitude(value) - range.low);
      if (key <= width) ++scratch.bins[lane][static_cast<std::size_t>(key >> shift)];
    };
    for (auto& lane : scratch.bins) lane.fill(0);
    std::size_t at = 0;
    for (; at + radix_scratch::lanes <= n; at += radix_scratch::lanes) {
      for (std::size_t lane = 0; lane < radix_scratch::lanes; ++lane) count(lane, values[at + lane]);
    }
    for (; at < n; ++at) count(0, values[at]);

    auto bin = static_cast<std::size_t>(width >> shift) + 1;
    std::size_t inside = 0;
    for (;;) {
      --bin;
      inside = 0;
      for (auto const& lane : scratch.bins) inside += lane[bin];
      if (k <= inside) break;
      k -= inside;
    }
    range.low = static_cast<bits>(range.low + (static_cast<bits>(bin) << shift));
    range.high = std::min(range.high, static_cast<bits>(range.low + ((bits{1} << shift) - 1)));
    if (shift == 0) return {range.low, k};
    if (inside > radix_scratch::few) continue;

    std::size_t used = 0;
    for (at = 0; at + block <= n; at += block) {
      std::uint64_t mask = Ops::at_least(values + at, range.low);
      if (mask != 0) mask &= ~Ops::at_least(values + at, static_cast<bits>(range.high + 1));
      for (; mask != 0; mask &= mask - 1) few[used++] = values[at + static_cast<std::size_t>(std::countr_zero(mask))];
    }
    for (; at < n; ++at) {
      bits const m = magnitude(values[at]);
      if (m >= range.low && m <= range.high) few[used++] = values[at];
    }
    return cut_of_few<Ops>(few, used, k, range);
  }
}

/// Copies the entries that `cut` leaves, at most `room`, in order; the target may be the source. Returns how many.
template <class Ops, class R, class I>
[[gnu::always_inline]] inline std::size_t compact(I const* indices, R const* values, std::size_t n,
                                                  magnitude_cut<R> cut, I* to_indices, R* to_values,
                                                  std::size_t room) noexcept {
  std::size_t used = 0;
  std::size_t ties = cut.ties;
  std::size_t const at = Ops::compact(indices, values, n, cut.bits, ties, to_indices, to_values, used, room);
  for (std::size_t i = at; i < n && used < room; ++i) {
    R const value = values[i];
    bits_t<R> const m = magnitude(value);
    std::size_t const tie = m == cut.bits && ties != 0 ? 1U : 0U;
    ties -= tie;
    to_indices[used] = indices[i];
    to_values[used] = value;
    used += (m > cut.bits ? 1U : 0U) | tie;
  }
  return used;
}

/// Entries in index order, and where the chosen ones go.
template <class R, class I>
struct extraction {
  I const* indices;
  R const* values;
  std::size_t size;
  I* to_indices;
  R* to_values;
};

/// `find_cut`, in any instructions.
struct cut_body {
  template <class Ops, class R>
  [[gnu::always_inline]] static magnitude_cut<R> run(R const* values, std::size_t size, std::size_t k,
                                                     radix_scratch& scratch) noexcept {
    return find_cut<Ops>(values, size, k, scratch);
  }
};

/// The cut that leaves exactly k of `size` values, 0 < k <= size, in the instructions of `set`.
template <class R>
magnitude_cut<R> cut_of(instruction_set set, R const* values, std::size_t size, std::size_t k,
                        radix_scratch& scratch) noexcept {
  return run_with<cut_body>(set, values, size, k, scratch);
}

/// `extract`, in any instructions.
struct extract_body {
  template <class Ops, class R, class I>
  [[gnu::always_inline]] static bits_t<R> run(extraction<R, I> const& entries, std::size_t k,
                                              radix_scratch& scratch) noexcept {
    magnitude_cut<R> const cut = find_cut<Ops>(entries.values, entries.size, k, scratch);
    compact<Ops>(entries.indices, entries.values, entries.size, cut, entries.to_indices, entries.to_values, k);
    return cut.bits;
  }
};

/// Copies the k first by magnitude, in index order, 0 < k <= size; the target may be the source. Returns the k-th magnitude. In the
/// instructions of `set`.
template <class R, class I>
bits_t<R> extract(instruction_set set, extraction<R, I> const& entries, std::size_t k,
                  radix_scratch& scratch) noexcept {
  return run_with<extract_body>(set, entries, k, scratch);
}

}  // namespace topsum::detail

#endif
