// SPDX-License-Identifier: BSL-1.0
/// \file
/// Memory that the host backend's verbs work in: reserved ahead, not copied along.
#ifndef TOPSUM_DETAIL_HOST_SCRATCH_HPP
#define TOPSUM_DETAIL_HOST_SCRATCH_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <topsum/core/memory.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_grid.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rows.hpp>
#include <topsum/detail/host_top_k.hpp>

namespace topsum::detail {

/// Scratch of fixed size.
struct fixed_scratch {
  radix_scratch radix;
  top_k_scratch top_k;
};

/// Scratch of one host backend. A copy starts empty; each `reserve_` allocates only what is missing.
class host_scratch {
 public:
  host_scratch() = default;
  host_scratch(host_scratch const&) noexcept {}
  host_scratch(host_scratch&&) noexcept = default;
  host_scratch& operator=(host_scratch const&) noexcept { return *this; }
  host_scratch& operator=(host_scratch&&) noexcept = default;
  ~host_scratch() = default;

  /// Bytes held.
  [[nodiscard]] std::size_t allocated_bytes() const noexcept {
    return indices_.size() + values_.size() + heads_.size() + grid_.size() + owners_.size() +
           positions_.size() * sizeof(std::size_t) + (fixed_ ? sizeof(fixed_scratch) : 0) +
           (row_ ? sizeof(row_scratch) : 0);
  }

  void reserve_fixed() {
    if (!fixed_) fixed_.reset(new fixed_scratch);  // uninitialised on purpose
  }
  /// For pieces whose groups are read twice.
  [[nodiscard]] row_scratch& row() {
    if (!row_) row_.reset(new row_scratch);  // uninitialised on purpose
    return *row_;
  }
  void reserve_candidates(std::size_t index_bytes, std::size_t value_bytes) {
    grow(indices_, index_bytes);
    grow(values_, value_bytes);
  }
  /// Memory for a piece whose groups interleave, with so many candidates at most. Allocates what is missing.
  template <class R>
  [[nodiscard]] grid_memory<R> grid_of_piece(piece const& p, std::size_t candidates) {
    std::size_t const groups = groups_of_block(p.grid);
    std::size_t const period = maxima_period<R>(p.grid, std::max(p.count, p.capacity));
    std::size_t const maxima = period == 0 ? 0 : period + p.grid.width;
    std::size_t const pitch = ranked_pitch<R>(p.grid.width);
    std::size_t const gathered = maxima == 0 ? 0 : std::max(maxima + block_size<R>, (most_ranked + 1) * pitch);
    std::size_t used = 0;
    auto const place = [&used](std::size_t bytes) {
      std::size_t const at = used;
      used += (bytes + 63) / 64 * 64;
      return at;
    };
    std::size_t const at[] = {place((p.grid.width + block_size<R>)*sizeof(bits_t<R>)),
                              place(groups * sizeof(grid_group<R>)),
                              place(candidates * sizeof(std::uint32_t)),
                              place(2 * pitch * sizeof(std::uint32_t)),
                              place(candidates * sizeof(R)),
                              place(maxima * sizeof(R)),
                              place(gathered * sizeof(R))};
    grow(grid_, used);
    std::byte* const memory = grid_.view().data();
    return {reinterpret_cast<bits_t<R>*>(memory + at[0]),
            reinterpret_cast<grid_group<R>*>(memory + at[1]),
            reinterpret_cast<std::uint32_t*>(memory + at[2]),
            reinterpret_cast<std::uint32_t*>(memory + at[3]),
            reinterpret_cast<R*>(memory + at[4]),
            reinterpret_cast<R*>(memory + at[5]),
            reinterpret_cast<R*>(memory + at[6])};
  }
  /// Memory for what is kept of owners' coordinates.
  [[nodiscard]] std::byte* reserve_owners(std::size_t bytes) {
    grow(owners_, bytes);
    return owners_.view().data();
  }
  void reserve_merge(std::size_t lists, std::size_t head_bytes) {
    grow(heads_, lists * head_bytes);
    grow(positions_, lists);
  }

  /// The part of fixed size.
  [[nodiscard]] fixed_scratch& fixed() {
    reserve_fixed();
    return *fixed_;
  }
  template <class I>
  [[nodiscard]] I* indices() noexcept {
    return reinterpret_cast<I*>(indices_.view().data());
  }
  template <class R>
  [[nodiscard]] R* values() noexcept {
    return reinterpret_cast<R*>(values_.view().data());
  }
  template <class Head>
  [[nodiscard]] Head* heads() noexcept {
    return reinterpret_cast<Head*>(heads_.view().data());
  }
  [[nodiscard]] std::size_t* positions() noexcept { return positions_.view().data(); }

 private:
  template <class T>
  static void grow(host_buffer<T>& memory, std::size_t size) {
    if (memory.size() < size) memory = host_buffer<T>{size};
  }

  host_buffer<std::byte> indices_;
  host_buffer<std::byte> values_;
  host_buffer<std::byte> heads_;
  host_buffer<std::byte> grid_;
  host_buffer<std::byte> owners_;
  host_buffer<std::size_t> positions_;
  std::unique_ptr<fixed_scratch> fixed_;
  std::unique_ptr<row_scratch> row_;
};

}  // namespace topsum::detail

#endif
