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
#include <functional>

#include <topsum/core/value.hpp>

namespace topsum::detail {

/// Fixed scratch of a radix walk.
struct radix_scratch {
  static constexpr int digit_bits = 11;
  static constexpr std::size_t few = 1024;  // so many keys are sorted out by comparison
  std::array<std::size_t, std::size_t{1} << digit_bits> bins;
  std::array<std::uint64_t, few> keys;

  template <class Bits>
  [[nodiscard]] Bits* keys_of() noexcept {
    if constexpr (sizeof(Bits) == 8) {
      return keys.data();
    } else {
      return short_keys.data();
    }
  }
  std::array<std::uint32_t, few> short_keys;
};

/// Where a list is cut: entries above `bits` stay, and the first `ties` of those equal to it.
template <class R>
struct magnitude_cut {
  bits_t<R> bits;
  std::size_t ties;
};

/// The k-th largest of `n` keys, and how many equal to it are among the k. Reorders the keys; 0 < k <= n.
template <class R>
[[nodiscard]] magnitude_cut<R> cut_of_keys(bits_t<R>* keys, std::size_t n, std::size_t k) noexcept {
  auto const last = keys + (k - 1);
  std::nth_element(keys, last, keys + n, std::greater<>{});
  bits_t<R> const bits = *last;
  std::size_t above = 0;
  for (auto p = keys; p != last; ++p) above += *p > bits ? 1U : 0U;
  return {bits, k - above};
}

/// The cut that leaves exactly k of `n` values, 0 < k <= n. No pass over less than all values stores anything.
template <class R>
[[nodiscard]] magnitude_cut<R> find_cut(R const* values, std::size_t n, std::size_t k, radix_scratch& scratch) noexcept {
  using bits = bits_t<R>;
  using signed_bits = std::make_signed_t<bits>;  // magnitudes are positive: narrow vectors compare signed
  bits* const keys = scratch.template keys_of<bits>();
  if (n <= radix_scratch::few) {
    for (std::size_t i = 0; i < n; ++i) keys[i] = magnitude(values[i]);
    return cut_of_keys<R>(keys, n, k);
  }
  signed_bits least = static_cast<signed_bits>(magnitude(values[0]));
  signed_bits most = least;
  for (std::size_t i = 1; i < n; ++i) {
    auto const m = static_cast<signed_bits>(magnitude(values[i]));
    least = m < least ? m : least;
    most = m > most ? m : most;
  }
  auto low = static_cast<bits>(least);
  auto high = static_cast<bits>(most);
  for (;;) {
    bits const range = static_cast<bits>(high - low);
    if (range == 0) return {low, k};
    int const shift = std::max(0, static_cast<int>(std::bit_width(range)) - radix_scratch::digit_bits);
    scratch.bins.fill(0);
    for (std::size_t i = 0; i < n; ++i) {
      bits const key = static_cast<bits>(magnitude(values[i]) - low);
      if (key <= range) ++scratch.bins[static_cast<std::size_t>(key >> shift)];
    }
    auto bin = static_cast<std::size_t>(range >> shift);
    while (k > scratch.bins[bin]) k -= scratch.bins[bin--];
    low = static_cast<bits>(low + (static_cast<bits>(bin) << shift));
    high = std::min(high, static_cast<bits>(low + ((bits{1} << shift) - 1)));
    if (shift == 0) return {low, k};
    if (scratch.bins[bin] <= radix_scratch::few) {
      std::size_t used = 0;
      for (std::size_t i = 0; i < n; ++i) {
        bits const m = magnitude(values[i]);
        if (m >= low && m <= high) keys[used++] = m;
      }
      return cut_of_keys<R>(keys, used, k);
    }
  }
}

/// Copies the entries that `cut` leaves, at most `room`, in order; the target may be the source. Returns how many.
template <class R, class I>
std::size_t compact(I const* indices, R const* values, std::size_t n, magnitude_cut<R> cut, I* to_indices, R* to_values,
                    std::size_t room) noexcept {
  std::size_t used = 0;
  std::size_t ties = cut.ties;
  for (std::size_t i = 0; i < n && used < room; ++i) {
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

}  // namespace topsum::detail

#endif
