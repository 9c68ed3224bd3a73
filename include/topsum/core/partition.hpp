// SPDX-License-Identifier: BSL-1.0
/// \file
/// All that a selection policy cuts the gradient into.
#ifndef TOPSUM_CORE_PARTITION_HPP
#define TOPSUM_CORE_PARTITION_HPP

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <topsum/core/piece.hpp>

namespace topsum {

/// A policy's pieces; for a policy that is made of several, such as `alternate`, what each of them has. A list of pieces is a
/// partition, and a partition is used as its list of pieces.
struct partition {
  std::vector<piece> pieces;     ///< in order, without overlap
  std::vector<partition> parts;  ///< of the policies that this one is made of
  std::size_t capacity = 0;      ///< entries that may travel in a step
  std::size_t room = 0;          ///< entries that `select` may write on its way there

  partition() = default;
  /// One way to cut; capacity is that of all pieces together.
  partition(std::vector<piece> list)
      : pieces{std::move(list)}, capacity{total_capacity(pieces)}, room{capacity} {}  // NOLINT(*-explicit-*)
  /// The same with a capacity below that.
  partition(std::vector<piece> list, std::size_t at_most)
      : pieces{std::move(list)}, capacity{at_most}, room{total_capacity(pieces)} {
    capacity = std::min(capacity, room);
  }
  /// Several ways, of which a step uses one: capacity is the largest.
  explicit partition(std::vector<partition> ways) : parts{std::move(ways)} {
    for (partition const& way : parts) {
      capacity = std::max(capacity, way.capacity);
      room = std::max(room, way.room);
    }
  }

  operator std::span<piece const>() const noexcept { return pieces; }  // NOLINT(*-explicit-*)

  /// `f` for every list of pieces, those of the parts included.
  template <class F>
  void for_each_list(F const& f) const {
    f(std::span<piece const>{pieces});
    for (partition const& part : parts) part.for_each_list(f);
  }
};

}  // namespace topsum

#endif
