// SPDX-License-Identifier: BSL-1.0
/// \file
/// Selection from groups that interleave, as strided rows and tiles do: one list of candidates for all groups of a block, a
/// limit for each column, and a cut that leaves each group its own.
#ifndef TOPSUM_DETAIL_HOST_GRID_HPP
#define TOPSUM_DETAIL_HOST_GRID_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <topsum/core/piece.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_dispatch.hpp>
#include <topsum/detail/host_grid_bounds.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rescan.hpp>
#include <topsum/detail/host_rows.hpp>

namespace topsum::detail {

/// Candidates of all groups of a block.
template <class R, class I>
class grid_candidates {
 public:
  /// Keeps `keep` entries of a group; lets a group have `leave` before it is cut.
  grid_candidates(candidate_list<R, I>& list, grid const& g, std::size_t keep, std::size_t leave,
                  grid_memory<R> const& memory) noexcept
      : list_{list},
        memory_{memory},
        grid_{g},
        groups_{groups_of_block(g)},
        keep_{keep},
        leave_{leave},
        step_{block_size<R> % g.width} {}

  /// Begins a block whose first position is `first`. `limit(group)`: magnitudes below do not enter.
  template <class Limit>
  void begin(std::size_t first, Limit const& limit) noexcept {
    first_ = first;
    column_ = 0;
    list_.used = 0;
    least_ = nonfinite_magnitude<R>;
    for (std::size_t g = 0; g < groups_; ++g) {
      memory_.groups[g].was_cut = false;
      limit_group(g, limit(g));
    }
    repeat_limits();
  }

  /// Adds those of a block that are in `mask` and reach their columns' limits. Blocks come one behind the other.
  template <class Ops>
  [[gnu::always_inline]] void add(R const* block, std::size_t first, std::uint64_t mask) noexcept {
    if (list_.used > list_.room) [[unlikely]]
      cut(leave_, true);
    mask &= Ops::at_least_each(block, memory_.limits + column_);
    advance();
    if (mask != 0) list_.used += Ops::append(block, mask, first, list_.indices + list_.used, list_.values + list_.used);
  }

  // Sink of a pass: `add` to all elements.
  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R> largest) noexcept {
    if (largest >= least_) {
      add<Ops>(block, first, low_bits(n));
    } else {
      advance();
    }
  }

  // Sink of a block that is read again: positions alone, without a branch. There is room for all of a block.
  template <class Ops>
  [[gnu::always_inline]] void retake(R const* block, std::size_t first, std::size_t n) noexcept {
    list_.used += Ops::positions_each(block, memory_.limits + column_, n, static_cast<std::uint32_t>(first - first_),
                                      memory_.ids + list_.used);
    advance();
  }
  /// Makes entries of those positions.
  template <class B, class T, class Formula>
  [[gnu::always_inline]] void gather(source<B, T, Formula> const& from, fault_masks const& faults) noexcept {
    gather_again(from, first_, faults, memory_.ids, list_.used, list_.values);
    for (std::size_t i = 0; i < list_.used; ++i) list_.indices[i] = static_cast<I>(first_ + memory_.ids[i]);
  }

  /// `finish` of a block that was read twice and whose groups are columns of few entries: all columns at once. Returns whether it
  /// could; each group has at least as many candidates as it keeps.
  template <class Ops>
  [[gnu::always_inline]] bool cut_columns() noexcept {
    constexpr std::size_t most_rows = 16;
    std::size_t const width = grid_.width;
    std::size_t const pitch = ranked_pitch<R>(width);
    std::size_t const k = keep_;
    if (grid_.run != 1 || k > most_ranked || grid_.height * width < most_rows * pitch) return false;
    R* const rows = memory_.by_group;
    R* const ranks = memory_.gathered;
    std::uint32_t* const counts = memory_.counts;
    std::uint32_t* const ties = counts + pitch;
    std::fill_n(rows, most_rows * pitch, R{0});
    std::fill_n(counts, pitch, 0U);
    // position / width by a product: exact below 2^16, as positions and widths of such a block are.
    std::uint64_t const inverse = (std::uint64_t{1} << 32) / width + 1;
    for (std::size_t i = 0; i < list_.used; ++i) {
      std::uint64_t const at = memory_.ids[i];
      auto const column = static_cast<std::uint32_t>(at - (at * inverse >> 32) * width);
      memory_.ids[i] = column;
      std::uint32_t const row = counts[column]++;
      rows[row % most_rows * pitch + column] = from_magnitude<R>(magnitude(list_.values[i]));
    }
    std::size_t const fullest = *std::max_element(counts, counts + pitch);
    if (fullest > most_rows) return false;
    rank_columns(rows, fullest, pitch, pitch, k, ranks);
    R const* const kth = ranks + (k - 1) * pitch;
    for (std::size_t c = 0; c < width; ++c) memory_.groups[c].least = magnitude(kth[c]);
    if (list_.used == k * width) return true;  // each column has what it keeps
    std::fill_n(ties, pitch, static_cast<std::uint32_t>(k));
    for (std::size_t r = 0; r < fullest; ++r) {
      for (std::size_t c = 0; c < pitch; ++c) ties[c] -= rows[r * pitch + c] > kth[c] ? 1U : 0U;
    }
    std::size_t used = 0;
    for (std::size_t i = 0; i < list_.used; ++i) {
      std::uint32_t const column = memory_.ids[i];
      R const value = list_.values[i];
      bits_t<R> const m = magnitude(value);
      bits_t<R> const edge = magnitude(kth[column]);
      std::uint32_t const tie = (m == edge ? 1U : 0U) & (ties[column] != 0 ? 1U : 0U);
      ties[column] -= tie;
      list_.indices[used] = list_.indices[i];
      list_.values[used] = value;
      used += (m > edge ? 1U : 0U) | tie;
    }
    list_.used = used;
    return true;
  }

  /// Cuts each group to what it keeps and moves all to `out`, while there is room. Then `groups()` tells of each group its
  /// candidates before this cut, whether it was cut earlier, and its smallest magnitude. Returns how many were moved.
  std::size_t finish(list_room<R, I> out) noexcept {
    cut(keep_, false);
    return move_to(out);
  }
  std::size_t move_to(list_room<R, I> out) const noexcept {
    std::size_t const moved = std::min(list_.used, out.capacity);
    if (moved != 0) {
      std::memcpy(out.indices, list_.indices, moved * sizeof(I));
      std::memcpy(out.values, list_.values, moved * sizeof(R));
    }
    return moved;
  }
  [[nodiscard]] std::span<grid_group<R> const> groups() const noexcept { return {memory_.groups, groups_}; }

 private:
  void advance() noexcept {
    column_ += step_;
    if (column_ >= grid_.width) column_ -= grid_.width;
  }
  void limit_group(std::size_t g, bits_t<R> limit) noexcept {
    std::size_t const column = g * grid_.run;
    std::fill_n(memory_.limits + column, std::min(grid_.run, grid_.width - column), limit);
    least_ = std::min(least_, limit);
  }
  void repeat_limits() noexcept {
    for (std::size_t i = 0; i < block_size<R>; ++i) memory_.limits[grid_.width + i] = memory_.limits[i];
  }
  [[nodiscard]] std::size_t kept(std::size_t g) const noexcept {
    return std::min(keep_, grid_.height * std::min(grid_.run, grid_.width - g * grid_.run));
  }
  [[nodiscard]] std::uint32_t group_of_index(I index) const noexcept {
    std::uint64_t const at = index - first_;
    std::uint64_t const column = (at | grid_.width) >> 32 == 0
                                     ? static_cast<std::uint32_t>(at) % static_cast<std::uint32_t>(grid_.width)
                                     : at % grid_.width;
    return static_cast<std::uint32_t>(grid_.run == 1 ? column : column / grid_.run);
  }

  /// Cuts every group of more than `leave` candidates to what it keeps: later entries must be larger than its last.
  [[gnu::noinline]] void cut(std::size_t leave, bool more_may_come) noexcept {
    if (!count_by_group(leave)) return;
    for (std::size_t i = 0; i < list_.used; ++i) {
      memory_.by_group[memory_.groups[memory_.ids[i]].end++] = list_.values[i];
    }
    least_ = nonfinite_magnitude<R>;
    for (std::size_t g = 0; g < groups_; ++g) {
      grid_group<R>& mine = memory_.groups[g];
      if (!mine.over) {
        mine.cut = {0, mine.count};
        least_ = std::min(least_, memory_.limits[g * grid_.run]);
        continue;
      }
      std::size_t const k = kept(g);
      R const* const values = memory_.by_group + (mine.end - mine.count);
      constexpr std::size_t few = 64 / sizeof(R);
      mine.cut = k == 0              ? magnitude_cut<R>{nonfinite_magnitude<R>, 0}
                 : mine.count <= few ? cut_of_lanes<few>(values, mine.count, k)
                                     : find_cut<portable_ops>(values, mine.count, k, *list_.scratch);
      mine.was_cut = mine.was_cut || more_may_come;
      mine.least = mine.cut.bits;
      if (more_may_come) limit_group(g, std::min<bits_t<R>>(mine.cut.bits + 1, nonfinite_magnitude<R>));
    }
    if (more_may_come) repeat_limits();
    std::size_t used = 0;
    for (std::size_t i = 0; i < list_.used; ++i) {  // without a branch: who stays is hard to foresee
      magnitude_cut<R>& mine = memory_.groups[memory_.ids[i]].cut;
      R const value = list_.values[i];
      bits_t<R> const m = magnitude(value);
      std::size_t const tie = (m == mine.bits ? 1U : 0U) & (mine.ties != 0 ? 1U : 0U);
      mine.ties -= tie;
      list_.indices[used] = list_.indices[i];
      list_.values[used] = value;
      used += (m > mine.bits ? 1U : 0U) | tie;
    }
    list_.used = used;
  }

  /// Finds every candidate's group, and which groups have more than `leave`. Returns whether any has.
  bool count_by_group(std::size_t leave) noexcept {
    for (std::size_t g = 0; g < groups_; ++g) {
      memory_.groups[g].count = 0;
      memory_.groups[g].least = nonfinite_magnitude<R>;
    }
    for (std::size_t i = 0; i < list_.used; ++i) {
      std::uint32_t const id = group_of_index(list_.indices[i]);
      grid_group<R>& mine = memory_.groups[id];
      memory_.ids[i] = id;
      ++mine.count;
      mine.least = std::min(mine.least, magnitude(list_.values[i]));
    }
    std::size_t begin = 0;
    bool any_over = false;
    for (std::size_t g = 0; g < groups_; ++g) {
      grid_group<R>& mine = memory_.groups[g];
      mine.over = mine.count > std::max(leave, kept(g));
      any_over |= mine.over;
      mine.end = begin;
      begin += mine.count;
    }
    return any_over;
  }

  candidate_list<R, I>& list_;
  grid_memory<R> memory_;
  grid grid_;
  std::size_t groups_;
  std::size_t keep_;
  std::size_t leave_;
  std::size_t step_;
  std::size_t first_ = 0;
  std::size_t column_ = 0;
  bits_t<R> least_ = 0;
};

/// Exactly the k first of each group, k > 0, while `out` has room; kth of each group. Returns how many were written.
template <class Ops, class B, class T, class Formula, class I>
[[gnu::always_inline]] inline std::size_t grid_body(source<B, T, Formula> const& from, piece const& p, std::size_t k,
                                                    candidate_list<wide_t<T>, I>& list,
                                                    grid_memory<wide_t<T>> const& memory, fault_masks& faults,
                                                    list_room<wide_t<T>, I> out, wide_t<T>* kth) noexcept {
  using R = wide_t<T>;
  std::size_t const size = p.grid.height * p.grid.width;
  std::size_t const period = maxima_period<R>(p.grid, k);
  grid_candidates<R, I> candidates{list, p.grid, k, k, memory};
  std::size_t used = 0;
  for (std::size_t first = p.begin; first < p.begin + p.size; first += size) {
    bool ranked = false;
    if (period == 0) {  // limits rise as the block streams by
      candidates.begin(first, [](std::size_t) { return bits_t<R>{0}; });
      run_pass(list.set, from, first, first + size, candidates);
    } else {
      faults.clear();
      bool const once = period >= size;  // each element is a maximum of its own
      if (!once) std::fill_n(memory.maxima, period, R{0});
      maxima_sink<R> sink{memory.maxima, period, first, faults, once};
      pass_body<Ops, false>(from, first, first + size, sink);
      bound_groups<Ops>(p.grid, k, period, memory);
      candidates.begin(first, [&](std::size_t g) { return memory.groups[g].bound; });
      rescan_body<Ops>(from, first, first + size, faults, candidates);
      candidates.gather(from, faults);
      ranked = candidates.template cut_columns<Ops>();
    }
    used += ranked ? candidates.move_to(out.behind(used)) : candidates.finish(out.behind(used));
    for (auto const& one : candidates.groups()) *kth++ = from_magnitude<R>(one.least);
  }
  return used;
}

struct grid_dispatch {
  template <class Ops, class... A>
  [[gnu::always_inline]] static std::size_t run(A&... arguments) noexcept {
    return grid_body<Ops>(arguments...);
  }
};

/// `grid_body` in the instructions of the list's set: `select_top_k` of a piece whose groups interleave.
template <class B, class T, class Formula, class I>
std::size_t top_k_of_grid(source<B, T, Formula> const& from, piece const& p, std::size_t k,
                          candidate_list<wide_t<T>, I>& list, grid_memory<wide_t<T>> const& memory, fault_masks& faults,
                          list_room<wide_t<T>, I> out, wide_t<T>* kth) noexcept {
  return run_with<grid_dispatch>(list.set, from, p, k, list, memory, faults, out, kth);
}

/// `select_at_least` of a piece whose groups interleave. Returns how many entries were written.
template <class B, class T, class Formula, class I>
std::size_t at_least_of_grid(source<B, T, Formula> const& from, piece const& p, std::span<wide_t<T> const> thresholds,
                             candidate_list<wide_t<T>, I>& list, grid_memory<wide_t<T>> const& memory,
                             list_room<wide_t<T>, I> out, std::span<std::size_t> counts) {
  using R = wide_t<T>;
  std::size_t const size = p.grid.height * p.grid.width;
  std::size_t const limit = 2 * std::max(p.count, p.capacity);
  grid_candidates<R, I> candidates{list, p.grid, p.capacity, limit, memory};
  std::size_t used = 0;
  std::size_t group = 0;
  for (std::size_t first = p.begin; first < p.begin + p.size; first += size) {
    candidates.begin(first, [&](std::size_t g) { return std::max<bits_t<R>>(1, magnitude(thresholds[group + g])); });
    run_pass(list.set, from, first, first + size, candidates);
    used += candidates.finish(out.behind(used));
    for (auto const& one : candidates.groups()) counts[group++] = one.was_cut ? limit : std::min(one.count, limit);
  }
  return used;
}

/// Sink: elements for which a predicate holds, as candidates of their groups.
template <class R, class I, class Predicate>
struct grid_predicate_sink {
  grid_candidates<R, I>& candidates;
  Predicate& predicate;

  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R>) noexcept {
    candidates.template add<Ops>(block, first, mask_where(predicate, block, first, n));
  }
};

/// `select_if` of a piece whose groups interleave. Returns how many entries were written.
template <class B, class T, class Formula, class Predicate, class I>
std::size_t select_if_of_grid(source<B, T, Formula> const& from, piece const& p, Predicate& predicate,
                              candidate_list<wide_t<T>, I>& list, grid_memory<wide_t<T>> const& memory,
                              list_room<wide_t<T>, I> out) {
  using R = wide_t<T>;
  std::size_t const size = p.grid.height * p.grid.width;
  grid_candidates<R, I> candidates{list, p.grid, p.capacity, p.capacity, memory};
  grid_predicate_sink<R, I, Predicate> sink{candidates, predicate};
  std::size_t used = 0;
  for (std::size_t first = p.begin; first < p.begin + p.size; first += size) {
    candidates.begin(first, [](std::size_t) { return bits_t<R>{0}; });
    run_pass(list.set, from, first, first + size, sink);
    used += candidates.finish(out.behind(used));
  }
  return used;
}

}  // namespace topsum::detail

#endif
