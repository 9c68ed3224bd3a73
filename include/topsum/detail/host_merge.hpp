// SPDX-License-Identifier: BSL-1.0
/// \file
/// Merges of lists of entries on the host. Equal indices are summed in the order of the lists, whatever the way.
#ifndef TOPSUM_DETAIL_HOST_MERGE_HPP
#define TOPSUM_DETAIL_HOST_MERGE_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include <topsum/detail/host_lists.hpp>

namespace topsum::detail {

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
std::size_t merge_by_heap(std::size_t lists, Range range, merge_head<I>* heap, std::size_t* positions, I* indices,
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

/// Positions of a window: its sums lie in the nearest cache, one bit each says which are there.
inline constexpr std::size_t merge_window = 2048;

/// Union of many lists, window by window over the positions: each list in turn adds its entries of the window to dense sums.
/// No comparison between lists, so nothing to mispredict; costs O(lists) a window. Returns the number of entries.
template <class R, class I, class Range>
std::size_t merge_by_windows(std::size_t lists, Range range, std::size_t* positions, I* indices, R* values,
                             std::size_t capacity) noexcept {
  std::array<R, merge_window> sums;
  std::array<std::uint64_t, merge_window / 64> present{};
  std::fill_n(positions, lists, std::size_t{0});
  std::size_t used = 0;
  for (;;) {
    bool done = true;
    std::uint64_t base = ~std::uint64_t{0};
    for (std::size_t l = 0; l < lists; ++l) {
      list_range<R, I> const list = range(l);
      if (positions[l] == list.size) continue;
      done = false;
      base = std::min(base, std::uint64_t{list.indices[positions[l]]});
    }
    if (done) return used;
    for (std::size_t l = 0; l < lists; ++l) {
      list_range<R, I> const list = range(l);
      std::size_t at = positions[l];
      for (; at < list.size; ++at) {
        std::uint64_t const place = list.indices[at] - base;
        if (place >= merge_window) break;
        std::uint64_t const bit = std::uint64_t{1} << (place % 64);
        bool const there = (present[place / 64] & bit) != 0;
        present[place / 64] |= bit;
        sums[place] = there ? sums[place] + list.values[at] : list.values[at];
      }
      positions[l] = at;
    }
    for (std::size_t word = 0; word < present.size(); ++word) {
      for (std::uint64_t left = present[word]; left != 0; left &= left - 1) {
        std::size_t const place = word * 64 + static_cast<std::size_t>(std::countr_zero(left));
        assert(used < capacity);
        indices[used] = static_cast<I>(base + place);
        values[used] = sums[place];
        ++used;
      }
      present[word] = 0;
    }
  }
}

/// Union of lists: by windows where these would hold an entry a list or more (3 to 5 times as fast there), else by comparing.
template <class R, class I, class Range>
std::size_t merge_many(std::size_t lists, Range range, merge_head<I>* heap, std::size_t* positions, I* indices,
                       R* values, std::size_t capacity) noexcept {
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t last = 0;
  std::uint64_t entries = 0;
  for (std::size_t l = 0; l < lists; ++l) {
    list_range<R, I> const list = range(l);
    if (list.size == 0) continue;
    first = std::min(first, std::uint64_t{list.indices[0]});
    last = std::max(last, std::uint64_t{list.indices[list.size - 1]});
    entries += list.size;
  }
  if (entries == 0) return 0;
  bool const dense = entries / lists > (last - first) / merge_window;
  if (dense) return merge_by_windows<R, I>(lists, range, positions, indices, values, capacity);
  if (lists == 2) return merge_two(range(0), range(1), indices, values);
  return merge_by_heap<R, I>(lists, range, heap, positions, indices, values, capacity);
}

}  // namespace topsum::detail

#endif
