// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host's selection of each owner's largest entries in one pass, and its verbs over lists that are dealt to owners.
#ifndef TOPSUM_DETAIL_HOST_QUOTAS_HPP
#define TOPSUM_DETAIL_HOST_QUOTAS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <topsum/core/interleaving.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_lists.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_rescan.hpp>
#include <topsum/detail/host_top_k.hpp>

namespace topsum::detail {

/// What is kept of one owner's coordinates, entries in the order of their indices.
template <class R, class I>
struct owner_candidates {
  candidate_list<R, I> list;
  bits_t<R> last;    ///< magnitude of its last entry
  std::size_t ties;  ///< entries of that magnitude
};

/// Entries that an owner's list has room for.
[[nodiscard]] constexpr std::size_t owner_room(quotas const& q) noexcept {
  return 3 * std::min(q.each, q.where.largest()) + 64;
}

/// Sink of `quotas_of_run`: what reaches a guess goes to one list; when the guess was bad, to each owner's.
template <class B, class T, class Formula, class I>
struct quota_sink {
  using R = wide_t<T>;

  source<B, T, Formula> const& from;
  quotas const& wanted;
  candidate_list<R, I>& list;
  std::span<owner_candidates<R, I>> owners;
  top_k_scratch& scratch;
  std::size_t faults = 0;
  bool dealt = false;  ///< entries go to the owners' lists

  void nonfinite(std::size_t first, std::uint64_t bad) noexcept {
    if (dealt) return;
    if (faults + block_size<R> > scratch.faults.size()) {
      look_back(first);
      return;
    }
    for (; bad != 0; bad &= bad - 1) scratch.faults[faults++] = first + static_cast<std::size_t>(std::countr_zero(bad));
  }

  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R> largest) noexcept {
    if (dealt) [[unlikely]] {
      deal(block, first, n);
    } else if (largest >= list.threshold) {
      list.template append<Ops>(block, first, low_bits(n));
    }
  }

  /// Elements of a block to their owners.
  [[gnu::noinline]] void deal(R const* block, std::size_t first, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i) append(static_cast<I>(first + i), block[i]);
  }

  [[gnu::always_inline]] void append(I index, R value) noexcept {
    candidate_list<R, I>& to = owners[wanted.where.owner_of(index)].list;
    if (magnitude(value) < to.threshold) return;
    if (to.used > to.room) to.cut();
    if (magnitude(value) < to.threshold) return;
    to.indices[to.used] = index;
    to.values[to.used] = value;
    ++to.used;
  }

  /// Selects from [0, end), evaluated before, without a guess.
  [[gnu::noinline]] void look_back(std::size_t end) noexcept {
    dealt = true;
    ++scratch.second_passes;
    for (auto& owner : owners) owner.list.clear(owner.list.keep, 0);
    std::size_t next_fault = 0;
    std::array<R, block_size<R>> block;
    for (std::size_t first = 0; first < end; first += block.size()) {
      std::size_t const n = std::min(block.size(), end - first);
      for (std::size_t i = 0; i < n; ++i) block[i] = evaluated(from, first + i);
      for (; next_fault < faults && scratch.faults[next_fault] < first + n; ++next_fault)
        block[static_cast<std::size_t>(scratch.faults[next_fault]) - first] = R{0};
      deal(block.data(), first, n);
    }
  }
};

/// Selects the quota of each owner from the whole source, indices increasing. `owners` have empty lists that keep their quotas.
/// Returns the number of entries; they lie in the owners' lists when `merged` is false, else in the target.
template <class B, class T, class Formula, class I>
std::size_t quotas_of_run(source<B, T, Formula> const& from, quotas const& wanted, candidate_list<wide_t<T>, I>& list,
                          std::span<owner_candidates<wide_t<T>, I>> owners, top_k_scratch& scratch, I* indices,
                          wide_t<T>* values, bool& merged) {
  std::size_t const n = wanted.where.n;
  std::size_t const total = wanted.total();
  // Some more than all quotas, since the fullest owner's share is above the mean.
  std::size_t const guessed = std::min(n, total + total / 4);
  list.clear(list.room, guess_threshold(from, 0, n, guessed, scratch));
  quota_sink<B, T, Formula, I> sink{from, wanted, list, owners, scratch};
  sink.dealt = list.threshold == 0;
  run_pass(list.set, from, 0, n, sink);
  merged = false;
  if (!sink.dealt) {
    for (std::size_t e = 0; !list.was_cut && e < list.used; ++e) sink.append(list.indices[e], list.values[e]);
    bool enough = !list.was_cut;
    for (auto const& owner : owners) enough = enough && owner.list.used >= owner.list.keep;
    merged = enough;
    if (!enough) sink.look_back(n);
  }
  for (auto& owner : owners) {
    candidate_list<wide_t<T>, I>& mine = owner.list;
    mine.used = mine.keep == 0 ? 0 : mine.used;
    if (mine.keep == 0) continue;
    owner.last = mine.extract(mine.keep, mine.indices, mine.values);
    mine.used = mine.keep;
    owner.ties = 0;
    for (std::size_t e = 0; e < mine.used; ++e) owner.ties += magnitude(mine.values[e]) == owner.last ? 1U : 0U;
  }
  if (!merged) return total;
  std::size_t used = 0;
  for (std::size_t e = 0; e < list.used; ++e) {  // in the order of indices
    auto& owner = owners[wanted.where.owner_of(list.indices[e])];
    if (owner.list.keep == 0) continue;
    bits_t<wide_t<T>> const m = magnitude(list.values[e]);
    bool const tie = m == owner.last && owner.ties != 0;
    if (m <= owner.last && !tie) continue;
    owner.ties -= tie ? 1U : 0U;
    indices[used] = list.indices[e];
    values[used] = list.values[e];
    ++used;
  }
  return used;
}

/// Entries by owner, then by index, which becomes a place; `ends[r]` entries go to owners up to r.
template <class R, class I>
void deal_list(list_range<R, I> list, interleaving const& where, I* indices, R* values, std::size_t* ends) noexcept {
  std::fill_n(ends, where.owners, std::size_t{0});
  for (std::size_t e = 0; e < list.size; ++e) ++ends[where.owner_of(list.indices[e])];
  std::size_t begin = 0;
  for (std::size_t r = 0; r < where.owners; ++r) {
    std::size_t const size = ends[r];
    ends[r] = begin;
    begin += size;
  }
  for (std::size_t e = 0; e < list.size; ++e) {
    std::size_t const to = ends[where.owner_of(list.indices[e])]++;
    indices[to] = static_cast<I>(where.place_of(list.indices[e]));
    values[to] = list.values[e];
  }
}

/// Adds zeros at the smallest places that a list lacks, until it has `count` entries, all below an extent of at least that.
template <class R, class I>
void pad_list(I* indices, R* values, std::size_t used, std::size_t count) noexcept {
  if (used >= count) return;
  // The last of the places that are added, and how many entries lie below it.
  std::size_t below = 0;
  std::size_t next = count - used;  // places 0 ... next - 1 are taken, entries of the list among them counted apart
  while (below < used && indices[below] < next + below) ++below;
  next += below;
  std::copy_backward(indices + below, indices + used, indices + count);
  std::copy_backward(values + below, values + used, values + count);
  std::size_t from = below;
  for (std::size_t to = next; to-- > 0;) {  // everything below `next`, from the last
    bool const there = from > 0 && indices[from - 1] == to;
    R const value = there ? values[from - 1] : R{0};
    from -= there ? 1U : 0U;
    indices[to] = static_cast<I>(to);
    values[to] = value;
  }
}

}  // namespace topsum::detail

#endif
