// SPDX-License-Identifier: BSL-1.0
/// \file
/// Verbs over lists of entries on the host: cuts, counts and scattered updates.
#ifndef TOPSUM_DETAIL_HOST_LISTS_HPP
#define TOPSUM_DETAIL_HOST_LISTS_HPP

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <topsum/core/value.hpp>

namespace topsum::detail {

/// A list's entries in use.
template <class R, class I>
struct list_range {
  I const* indices;
  R const* values;
  std::size_t size;
};

/// The entries of a whose index b has; the target may be a. Returns their number.
template <class R, class I>
std::size_t intersect(list_range<R, I> a, list_range<R, I> b, I* indices, R* values) noexcept {
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t used = 0;
  while (i < a.size && j < b.size) {
    I const left = a.indices[i];
    I const right = b.indices[j];
    if (left == right) {
      R const value = a.values[i];
      indices[used] = left;
      values[used] = value;
      ++used;
    }
    i += left <= right ? 1U : 0U;
    j += right <= left ? 1U : 0U;
  }
  return used;
}

/// The entries of a whose index b lacks; the target may be a. Returns their number.
template <class R, class I>
std::size_t difference(list_range<R, I> a, list_range<R, I> b, I* indices, R* values) noexcept {
  std::size_t j = 0;
  std::size_t used = 0;
  for (std::size_t i = 0; i < a.size; ++i) {
    I const index = a.indices[i];
    R const value = a.values[i];
    while (j < b.size && b.indices[j] < index) ++j;
    if (j < b.size && b.indices[j] == index) continue;
    indices[used] = index;
    values[used] = value;
    ++used;
  }
  return used;
}

/// floor(i * m / parts) for i <= parts < 2^32, without overflow.
[[nodiscard]] constexpr std::uint64_t share(std::uint64_t i, std::uint64_t m, std::uint64_t parts) noexcept {
  return i * (m / parts) + i * (m % parts) / parts;
}

/// Applies `update(dense[index], value)` to each entry; the targets are fetched ahead.
template <class R, class I, class T, class Update>
void scatter(list_range<R, I> list, T* dense, Update update) noexcept {
  constexpr std::size_t ahead = 32;
  std::size_t i = 0;
#if defined(__GNUC__) || defined(__clang__)
  for (; i + ahead < list.size; ++i) {
    __builtin_prefetch(dense + list.indices[i + ahead], 1);
    update(dense[list.indices[i]], list.values[i]);
  }
#endif
  for (; i < list.size; ++i) update(dense[list.indices[i]], list.values[i]);
}

/// Whether a received list may be used: as many entries as it has room for, indices increasing strictly in [begin, end).
template <class R, class I>
[[nodiscard]] bool well_formed(list_range<R, I> list, std::size_t capacity, std::size_t begin,
                               std::size_t end) noexcept {
  if (list.size > capacity) return false;
  if (list.size == 0) return true;
  bool const inside = list.indices[0] >= begin && list.indices[list.size - 1] < end;
  I bad = 0;  // no early way out, so that vectors do it
  for (std::size_t i = 1; i < list.size; ++i) bad |= list.indices[i - 1] >= list.indices[i] ? I{1} : I{0};
  return inside && bad == 0;
}

/// The bits of a magnitude that follow the leading `known`, `width` of them, for magnitudes that share those with `prefix`.
template <class R, class I>
void histogram(list_range<R, I> list, bits_t<R> prefix, int known, int width, I* bins) noexcept {
  int const rest = magnitude_bits<R> - known;
  int const shift = rest - width;
  assert(known >= 0 && width > 0 && shift >= 0);
  std::fill_n(bins, std::size_t{1} << width, I{0});
  auto const mask = static_cast<bits_t<R>>((bits_t<R>{1} << width) - 1);
  for (std::size_t i = 0; i < list.size; ++i) {
    bits_t<R> const m = magnitude(list.values[i]);
    if (m >> rest == prefix >> rest) ++bins[static_cast<std::size_t>((m >> shift) & mask)];
  }
}

}  // namespace topsum::detail

#endif
