// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host's selection of each owner's largest entries in one pass, and its verbs over lists that are dealt to owners.
#ifndef TOPSUM_DETAIL_HOST_QUOTAS_HPP
#define TOPSUM_DETAIL_HOST_QUOTAS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <topsum/core/interleaving.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_lists.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rescan.hpp>
#include <topsum/detail/host_top_k.hpp>

namespace topsum::detail {

/// `interleaving::owner_of` for many positions: divisions are products with a reciprocal. A quotient that is half a step from the
/// next integer is rounded right as long as positions lie below 2^50.
class owner_finder {
 public:
  explicit owner_finder(interleaving const& where) noexcept
      : owners_{static_cast<std::int64_t>(where.owners)},
        per_block_{1.0 / static_cast<double>(where.block)},
        per_round_{1.0 / static_cast<double>(where.owners)} {}

  [[nodiscard]] std::uint32_t operator()(std::uint64_t position) const noexcept {
    std::int64_t const block = quotient(static_cast<std::int64_t>(position), per_block_);
    std::int64_t const round = quotient(block, per_round_);
    std::int64_t const turn = round - quotient(round, per_round_) * owners_;
    std::int64_t const owner = block - round * owners_ + turn;
    return static_cast<std::uint32_t>(owner < owners_ ? owner : owner - owners_);
  }

 private:
  static std::int64_t quotient(std::int64_t of, double reciprocal) noexcept {
    return static_cast<std::int64_t>((static_cast<double>(of) + 0.5) * reciprocal);
  }
  std::int64_t owners_;
  double per_block_;
  double per_round_;
};

/// Entries that should reach a guess: enough for every owner's quota almost surely, since the fullest owner's share is above the
/// mean by some of its standard deviations, and by what makes gradients uneven.
[[nodiscard]] inline std::size_t guessed_entries(quotas const& q) noexcept {
  auto const spread = static_cast<std::size_t>(5.0 * std::sqrt(static_cast<double>(q.each)));
  std::size_t const each = std::min(q.each, q.where.largest());
  return std::min(q.where.n, q.where.owners * (each + each / 8 + spread + 5));
}

/// Entries that an owner's own list has room for.
[[nodiscard]] constexpr std::size_t owner_room(quotas const& q) noexcept {
  return 3 * std::min(q.each, q.where.largest()) + 64;
}

/// What is known of one owner's share.
template <class R, class I>
struct owner_share {
  candidate_list<R, I>
      own;                 ///< its entries, indices increasing, where they are not in the list of all; keeps its quota
  magnitude_cut<R> cut{};  ///< what stays of its entries in the list of all
  std::size_t end = 0;     ///< of its values among those of all owners
  bool is_apart = false;   ///< its entries are in `own`
};

/// Scratch of `select_quotas`: of each candidate its owner, and the values sorted by owner.
template <class R, class I>
struct quota_scratch {
  std::span<owner_share<R, I>> owners;
  std::uint32_t* owner_of_entry;
  R* values;
};

/// Sink of `quotas_of_run`: what reaches a guess goes to one list; when there is none, to the owners' own.
template <class B, class T, class Formula, class I>
struct quota_sink {
  using R = wide_t<T>;

  source<B, T, Formula> const& from;
  quotas const& wanted;
  candidate_list<R, I>& list;
  std::span<owner_share<R, I>> owners;
  top_k_scratch& scratch;
  owner_finder owner_of{wanted.where};
  std::size_t faults = 0;
  bool dealt = false;  ///< entries go to the owners' own lists

  void nonfinite(std::size_t first, std::uint64_t bad) noexcept {
    if (dealt) return;
    if (faults + block_size<R> > scratch.faults.size()) {
      deal_again(first);
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
    for (std::size_t i = 0; i < n; ++i) append(owners[owner_of(first + i)].own, static_cast<I>(first + i), block[i]);
  }

  static void append(candidate_list<R, I>& to, I index, R value) noexcept {
    if (magnitude(value) < to.threshold) return;
    if (to.used > to.room) to.cut();
    if (magnitude(value) < to.threshold) return;
    to.indices[to.used] = index;
    to.values[to.used] = value;
    ++to.used;
  }

  /// Element i, evaluated before.
  [[nodiscard]] R again(std::size_t i) const noexcept {
    auto const end = scratch.faults.begin() + static_cast<std::ptrdiff_t>(faults);
    if (faults != 0 && std::binary_search(scratch.faults.begin(), end, i)) return R{0};
    return evaluated(from, i);
  }

  /// Selects from [0, end), evaluated before, without a guess.
  [[gnu::noinline]] void deal_again(std::size_t end) noexcept {
    ++scratch.second_passes;
    dealt = true;
    for (std::size_t i = 0; i < end; ++i) append(owners[owner_of(i)].own, static_cast<I>(i), again(i));
  }

  /// Selects one owner's entries without a guess: its coordinates are read again.
  [[gnu::noinline]] void set_apart(std::size_t r) noexcept {
    ++scratch.second_passes;
    owners[r].is_apart = true;
    std::size_t const size = wanted.where.size_of(r);
    for (std::size_t place = 0; place < size;) {
      std::size_t const first = wanted.where.position_of(r, place);
      std::size_t const n = std::min(wanted.where.block, size - place);
      for (std::size_t i = first; i < first + n; ++i) append(owners[r].own, static_cast<I>(i), again(i));
      place += n;
    }
  }
};

/// For each owner the cut that leaves its quota of a list; `set_apart(r)` where it has fewer entries there, and none stays.
template <class R, class I, class Apart>
void cut_by_owner(quotas const& wanted, candidate_list<R, I> const& list, quota_scratch<R, I> const& memory,
                  Apart set_apart) {
  owner_finder const owner_of{wanted.where};
  auto const owners = memory.owners;
  for (auto& owner : owners) owner.end = 0;
  for (std::size_t e = 0; e < list.used; ++e) memory.owner_of_entry[e] = owner_of(list.indices[e]);
  for (std::size_t e = 0; e < list.used; ++e) ++owners[memory.owner_of_entry[e]].end;
  std::size_t begin = 0;
  for (auto& owner : owners) begin += std::exchange(owner.end, begin);
  for (std::size_t e = 0; e < list.used; ++e) memory.values[owners[memory.owner_of_entry[e]].end++] = list.values[e];
  begin = 0;
  for (std::size_t r = 0; r < owners.size(); ++r) {
    std::size_t const size = owners[r].end - begin;
    std::size_t const keep = owners[r].own.keep;
    owners[r].cut = {nonfinite_magnitude<R>, 0};
    if (size < keep) {
      set_apart(r);
    } else if (keep != 0) {
      owners[r].cut = cut_of(list.set, memory.values + begin, size, keep, *list.scratch);
    }
    begin = owners[r].end;
  }
}

/// Copies what the owners' cuts leave of a list, `total` entries, in the order of indices; the target may be the list.
template <class R, class I>
void keep_cuts(candidate_list<R, I> const& list, quota_scratch<R, I> const& memory, std::size_t total, I* indices,
               R* values) noexcept {
  std::size_t used = 0;
  for (std::size_t e = 0; used < total; ++e) {
    magnitude_cut<R>& cut = memory.owners[memory.owner_of_entry[e]].cut;
    I const index = list.indices[e];
    R const value = list.values[e];
    bits_t<R> const m = magnitude(value);
    std::size_t const tie = m == cut.bits && cut.ties != 0 ? 1U : 0U;
    cut.ties -= tie;
    indices[used] = index;
    values[used] = value;
    used += (m > cut.bits ? 1U : 0U) | tie;
  }
}

/// Selects the quota of each owner from the whole source, indices increasing. The owners' own lists are empty, and keep their
/// quotas. `merge(n, range, indices, values)` merges n lists, whose indices differ, to the target.
template <class B, class T, class Formula, class I, class Merge>
void quotas_of_run(source<B, T, Formula> const& from, quotas const& wanted, candidate_list<wide_t<T>, I>& list,
                   quota_scratch<wide_t<T>, I> const& memory, top_k_scratch& scratch, I* indices, wide_t<T>* values,
                   Merge merge) {
  using R = wide_t<T>;
  std::size_t const n = wanted.where.n;
  auto const owners = memory.owners;
  std::size_t const guessed = guessed_entries(wanted);
  list.clear(guessed, guess_threshold(from, 0, n, guessed, scratch));  // a cut leaves of each owner its first
  quota_sink<B, T, Formula, I> sink{from, wanted, list, owners, scratch};
  sink.dealt = list.threshold == 0;
  run_pass(list.set, from, 0, n, sink);
  if (sink.dealt) {
    list.used = 0;
    for (auto& owner : owners) owner.is_apart = true;
  } else {
    cut_by_owner(wanted, list, memory, [&](std::size_t r) { sink.set_apart(r); });
  }
  std::size_t together = wanted.total();
  for (auto& owner : owners) {
    if (!owner.is_apart) continue;
    auto& own = owner.own;
    together -= own.keep;
    if (own.keep != 0) own.extract(own.keep, own.indices, own.values);
    own.used = own.keep;
  }
  if (together == wanted.total()) return keep_cuts(list, memory, together, indices, values);
  keep_cuts(list, memory, together, list.indices, list.values);
  list.used = together;
  merge(
      owners.size() + 1,
      [&](std::size_t l) {
        auto const& of = l == 0 ? list : owners[l - 1].own;
        return list_range<R, I>{of.indices, of.values, l == 0 || owners[l - 1].is_apart ? of.used : 0};
      },
      indices, values);
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
