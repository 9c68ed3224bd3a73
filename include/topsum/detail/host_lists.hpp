// SPDX-License-Identifier: BSL-1.0
/// \file
/// Verbs over lists of entries on the host: merges, cuts, counts and scattered updates.
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

/// Union of two lists; equal indices give a's value + b's. Returns the number of entries.
template <class R, class I>
std::size_t merge_two(list_range<R, I> a, list_range<R, I> b, I* indices, R* values) noexcept {
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t used = 0;
  while (i < a.size && j < b.size) {
    I const left = a.indices[i];
    I const right = b.indices[j];
    R const x = a.values[i];
    R const y = b.values[j];
    indices[used] = left < right ? left : right;
    values[used] = left < right ? x : right < left ? y : x + y;
    ++used;
    i += left <= right ? 1U : 0U;
    j += right <= left ? 1U : 0U;
  }
  for (; i < a.size; ++i, ++used) {
    indices[used] = a.indices[i];
    values[used] = a.values[i];
  }
  for (; j < b.size; ++j, ++used) {
    indices[used] = b.indices[j];
    values[used] = b.values[j];
  }
  return used;
}

/// Where one of many merged lists stands.
template <class I>
struct merge_head {
  I index;
  std::uint32_t list;
  friend bool operator<(merge_head const& a, merge_head const& b) noexcept {
    return a.index < b.index || (a.index == b.index && a.list < b.list);
  }
};

/// Moves the head at the root of a heap of `n` down to its place.
template <class I>
void sift_down(merge_head<I>* heap, std::size_t n, std::size_t at) noexcept {
  merge_head<I> const moving = heap[at];
  for (;;) {
    std::size_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && heap[child + 1] < heap[child]) ++child;
    if (!(heap[child] < moving)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moving;
}

/// Union of many lists. `heap` and `positions` have room for one element a list; `range(l)` is list l.
template <class R, class I, class Range>
std::size_t merge_many(std::size_t lists, Range range, merge_head<I>* heap, std::size_t* positions, I* indices,
                       R* values, [[maybe_unused]] std::size_t capacity) noexcept {
  std::size_t heads = 0;
  for (std::size_t l = 0; l < lists; ++l) {
    positions[l] = 0;
    if (range(l).size != 0) heap[heads++] = {range(l).indices[0], static_cast<std::uint32_t>(l)};
  }
  for (std::size_t i = heads / 2; i-- > 0;) sift_down(heap, heads, i);
  std::size_t used = 0;
  while (heads != 0) {
    merge_head<I> const head = heap[0];
    list_range<R, I> const from = range(head.list);
    std::size_t const at = positions[head.list]++;
    R const value = from.values[at];
    if (used != 0 && indices[used - 1] == head.index) {
      values[used - 1] += value;
    } else {
      assert(used < capacity);
      indices[used] = head.index;
      values[used] = value;
      ++used;
    }
    if (at + 1 < from.size) {
      heap[0].index = from.indices[at + 1];
    } else {
      heap[0] = heap[--heads];
    }
    if (heads != 0) sift_down(heap, heads, 0);
  }
  return used;
}

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

/// floor(i * m / parts) for i <= parts < 2^32, without overflow.
[[nodiscard]] constexpr std::uint64_t share(std::uint64_t i, std::uint64_t m, std::uint64_t parts) noexcept {
  return i * (m / parts) + i * (m % parts) / parts;
}

/// Applies `update(dense[index], value)` to each entry; the targets are fetched ahead.
template <class R, class I, class Update>
void scatter(list_range<R, I> list, R* dense, Update update) noexcept {
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
  bool good = list.indices[0] >= begin && list.indices[list.size - 1] < end;
  for (std::size_t i = 1; i < list.size; ++i) good = good && list.indices[i - 1] < list.indices[i];
  return good;
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
