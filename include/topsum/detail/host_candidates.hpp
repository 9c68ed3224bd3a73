// SPDX-License-Identifier: BSL-1.0
/// \file
/// Candidates of a selection on the host, with a streaming cap: however many qualify, one pass and bounded memory do.
#ifndef TOPSUM_DETAIL_HOST_CANDIDATES_HPP
#define TOPSUM_DETAIL_HOST_CANDIDATES_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <topsum/core/memory.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_radix.hpp>

namespace topsum::detail {

/// Values that may be read again after a pass: what a second-level cache holds.
inline constexpr std::size_t stretch = 65536;

/// Candidates of what is selected from at a time, which is a group, or a block where groups interleave, before they are cut:
/// three times what it may keep, and `slack`; all of a block that is read twice.
[[nodiscard]] constexpr std::size_t candidate_room(piece const& p, std::size_t slack) noexcept {
  grid const g = grid_of(p);
  bool const interleaved = g.height != 1;
  std::size_t const size = interleaved ? g.height * g.width : g.run;
  std::size_t const keep = std::min(size, std::max(p.count, p.capacity) * (interleaved ? groups_of_block(g) : 1));
  if (size / 3 <= keep || (interleaved && size <= stretch)) return size;
  return std::min(size, 3 * keep + slack);
}

/// Room for entries.
template <class R, class I>
struct list_room {
  I* indices;
  R* values;
  std::size_t capacity;

  [[nodiscard]] list_room behind(std::size_t used) const noexcept {
    return {indices + used, values + used, capacity - used};
  }
};

/// Entries in the order of their indices. What is appended has a magnitude of at least `threshold`.
template <class R, class I>
struct candidate_list {
  static constexpr std::size_t overhang = 2 * block_size<float>;  // vector stores write whole blocks

  I* indices;
  R* values;
  std::size_t room;     ///< cut when more are in use; memory is for `overhang` more
  std::size_t keep;     ///< what a cut leaves
  bits_t<R> threshold;  ///< magnitudes below do not enter
  radix_scratch* scratch;
  instruction_set set;
  std::size_t used = 0;
  bool was_cut = false;

  /// Begins again.
  void clear(std::size_t to_keep, bits_t<R> least) noexcept {
    keep = to_keep;
    threshold = least;
    used = 0;
    was_cut = false;
  }

  /// Leaves the `keep` first by magnitude. Later entries must be larger than the last of them: ties go to the smaller index.
  [[gnu::noinline]] void cut() noexcept {
    was_cut = true;
    if (keep == 0) {
      used = 0;
      threshold = nonfinite_magnitude<R>;
      return;
    }
    bits_t<R> const last = extract(keep, indices, values);
    used = keep;
    threshold = static_cast<bits_t<R>>(last + 1);
  }

  /// Appends the elements of a block named by `mask` whose magnitude is not below the threshold.
  template <class Ops>
  [[gnu::always_inline]] void append(R const* block, std::size_t first, std::uint64_t mask) noexcept {
    if (used > room) [[unlikely]]
      cut();
    mask &= Ops::at_least(block, threshold);
    used += Ops::append(block, mask, first, indices + used, values + used);
  }

  /// Writes the `k` first by magnitude to a list, in the order of their indices; returns the last one's magnitude. 0 < k <= used.
  bits_t<R> extract(std::size_t k, I* to_indices, R* to_values) noexcept {
    return detail::extract(set, extraction<R, I>{indices, values, used, to_indices, to_values}, k, *scratch);
  }
};

/// Sink: elements with a magnitude of at least the list's threshold.
template <class R, class I>
struct threshold_sink {
  candidate_list<R, I>& list;

  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R> largest) noexcept {
    if (largest >= list.threshold) list.template append<Ops>(block, first, low_bits(n));
  }
};

/// Bit i < n: the predicate holds for block[i], which lies at first + i.
template <class R, class Predicate>
[[gnu::always_inline]] inline std::uint64_t mask_where(Predicate& predicate, R const* block, std::size_t first,
                                                       std::size_t n) noexcept {
  constexpr std::size_t size = block_size<R>;
  std::array<unsigned char, size> holds;
  if (n == size) {
    for (std::size_t i = 0; i < size; ++i) holds[i] = predicate(first + i, block[i]) ? 1 : 0;
  } else {
    for (std::size_t i = 0; i < size; ++i) holds[i] = i < n && predicate(first + i, block[i]) ? 1 : 0;
  }
  return mask_of<size>(holds.data());
}

/// Sink: elements for which a predicate holds.
template <class R, class I, class Predicate>
struct predicate_sink {
  candidate_list<R, I>& list;
  Predicate& predicate;

  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R>) noexcept {
    std::uint64_t const mask = mask_where(predicate, block, first, n);
    if (mask != 0) list.template append<Ops>(block, first, mask);
  }
};

}  // namespace topsum::detail

#endif
