// SPDX-License-Identifier: BSL-1.0
/// \file
/// Verbs over lists of entries on the host that know the groups of pieces.
#ifndef TOPSUM_DETAIL_HOST_GROUP_LISTS_HPP
#define TOPSUM_DETAIL_HOST_GROUP_LISTS_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_lists.hpp>

namespace topsum::detail {

/// The k-th largest magnitude of `size` values, 0 < k <= size, by rounds of counting. Stores nothing.
template <class R>
[[nodiscard]] bits_t<R> kth_magnitude(R const* values, std::size_t size, std::size_t k) noexcept {
  constexpr int width = 8;
  std::array<std::size_t, std::size_t{1} << width> bins;
  bits_t<R> prefix = 0;
  for (int known = 0; known < magnitude_bits<R>;) {
    int const step = std::min(width, magnitude_bits<R> - known);
    int const rest = magnitude_bits<R> - known;
    bins.fill(0);
    for (std::size_t i = 0; i < size; ++i) {
      bits_t<R> const m = magnitude(values[i]);
      if (known == 0 || m >> rest == prefix >> rest)
        ++bins[static_cast<std::size_t>(m >> (rest - step)) & ((std::size_t{1} << step) - 1)];
    }
    std::size_t bin = (std::size_t{1} << step) - 1;
    for (; bins[bin] < k; --bin) k -= bins[bin];
    known += step;
    prefix |= static_cast<bits_t<R>>(bin) << (magnitude_bits<R> - known);
  }
  return prefix;
}

/// Of whole pieces: see `list_backend`. O(entries + pieces).
template <class R, class I>
void kth_of_pieces(list_range<R, I> list, std::span<piece const> pieces, R* out) noexcept {
  std::size_t at = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    while (at < list.size && list.indices[at] < pieces[p].begin) ++at;
    std::size_t const first = at;
    while (at < list.size && list.indices[at] < pieces[p].begin + pieces[p].size) ++at;
    std::size_t const k = std::min(pieces[p].count, at - first);
    out[p] = k == 0 ? R{0} : from_magnitude<R>(kth_magnitude(list.values + first, at - first, k));
  }
}

/// Calls `f(entry, g)` for each entry that lies in a piece, from the last to the first, g being its group among all.
template <class R, class I, class F>
void each_entry_backwards(list_range<R, I> list, std::span<piece const> pieces, F f) {
  std::size_t first_group = total_groups(pieces);
  std::size_t e = list.size;
  for (std::size_t p = pieces.size(); p-- > 0;) {
    first_group -= group_count(pieces[p]);
    while (e > 0 && list.indices[e - 1] >= pieces[p].begin) {
      --e;
      std::size_t const i = list.indices[e];
      if (i < pieces[p].begin + pieces[p].size) f(e, first_group + group_of(pieces[p], i));
    }
  }
}

/// Drops an entry of each group with drop[g] != 0, the last of magnitude kth[g], and sets drop[g] to 0; returns how many are left.
template <class R, class I>
std::size_t drop_last(list_range<R, I> list, std::span<piece const> pieces, R const* kth, R* drop, I* indices,
                      R* values) noexcept {
  // Kept entries move to the end of the target first, then to its front: the target may be the list.
  std::size_t to = list.size;
  each_entry_backwards(list, pieces, [&](std::size_t e, std::size_t g) {
    I const index = list.indices[e];
    R const value = list.values[e];
    if (drop[g] != R{0} && magnitude(value) == magnitude(kth[g])) {
      drop[g] = R{0};
      return;
    }
    --to;
    indices[to] = index;
    values[to] = value;
  });
  std::size_t const left = list.size - to;
  std::copy(indices + to, indices + list.size, indices);
  std::copy(values + to, values + list.size, values);
  return left;
}

/// Groups with an entry. `marks` holds a number a group.
template <class R, class I>
[[nodiscard]] std::size_t count_groups(list_range<R, I> list, std::span<piece const> pieces, std::uint32_t* marks) {
  std::fill_n(marks, total_groups(pieces), 0U);
  std::size_t seen = 0;
  each_entry_backwards(list, pieces, [&](std::size_t, std::size_t g) { seen += marks[g]++ == 0 ? 1U : 0U; });
  return seen;
}

}  // namespace topsum::detail

#endif
