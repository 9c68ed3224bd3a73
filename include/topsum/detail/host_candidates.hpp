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

/// Candidates that a piece may have before they are cut: three times what it may keep, and `slack`.
[[nodiscard]] constexpr std::size_t candidate_room(piece const& p, std::size_t slack) noexcept {
  std::size_t const keep = std::min(p.size, std::max(p.count, p.capacity));
  return p.size / 3 <= keep ? p.size : std::min(p.size, 3 * keep + slack);
}

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

/// Sink: elements for which a predicate holds.
template <class R, class I, class Predicate>
struct predicate_sink {
  candidate_list<R, I>& list;
  Predicate& predicate;

  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R>) noexcept {
    constexpr std::size_t size = block_size<R>;
    std::array<unsigned char, size> holds;
    if (n == size) {
      for (std::size_t i = 0; i < size; ++i) holds[i] = predicate(first + i, block[i]) ? 1 : 0;
    } else {
      for (std::size_t i = 0; i < size; ++i) holds[i] = i < n && predicate(first + i, block[i]) ? 1 : 0;
    }
    std::uint64_t const mask = mask_of<size>(holds.data());
    if (mask != 0) list.template append<Ops>(block, first, mask);
  }
};

/// Memory of selections, reserved once.
class selection_scratch {
 public:
  static constexpr std::size_t remembered_faults = 1024;
  static constexpr std::size_t row = 4096;  ///< pieces up to this size are kept whole in the first-level cache
  static constexpr std::size_t buckets = 4096;

  radix_scratch radix;
  std::array<std::uint64_t, remembered_faults> faults;
  std::array<std::uint32_t, buckets> histogram;
  alignas(64) std::array<double, row + 64> row_values;

  /// The row's values as R.
  template <class R>
  [[nodiscard]] R* row_of() noexcept {
    if constexpr (sizeof(R) == 8) {
      return row_values.data();
    } else {
      return short_row_values_.data();
    }
  }

 private:
  alignas(64) std::array<float, row + 64> short_row_values_;
};

}  // namespace topsum::detail

#endif
