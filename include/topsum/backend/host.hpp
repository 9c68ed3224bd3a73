// SPDX-License-Identifier: BSL-1.0
/// \file
/// The backend on which data live in host memory and loops run on the calling thread.
#ifndef TOPSUM_BACKEND_HOST_HPP
#define TOPSUM_BACKEND_HOST_HPP

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <topsum/core/entries.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_codecs.hpp>
#include <topsum/detail/host_grid.hpp>
#include <topsum/detail/host_group_lists.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_lists.hpp>
#include <topsum/detail/host_memory.hpp>
#include <topsum/detail/host_merge.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_quotas.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rows.hpp>
#include <topsum/detail/host_scratch.hpp>
#include <topsum/detail/host_statistics.hpp>
#include <topsum/detail/host_top_k.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// Keyword and backend: host memory, the calling thread, the widest vectors that the CPU has.
///
/// Satisfies `backend`; the laws of the verbs stand there. Verbs run at once, so `wait` does nothing. They allocate nothing
/// once `reserve_selection` and `reserve_lists` have been called with sizes that suffice, and throw only when they must allocate.
/// A copy starts with no scratch of its own. Not to be shared between threads: give each its copy.
///
/// Cost: a selecting verb is one pass over gradient and states, plus O(candidates); candidates are at most three times what may
/// be kept, and `slack`. The result is the same, bit for bit, for every instruction set.
class host : public detail::host_memory_verbs {
 public:
  using stage_tag = backend_tag;
  using instruction_set = topsum::instruction_set;
  static constexpr std::string_view name = "host";

  template <class T>
  using span = host_span<T>;
  template <class T>
  using buffer = host_buffer<T>;

  /// Spare room for candidates of a piece: more costs memory, less costs time on inputs with many ties.
  static constexpr std::size_t default_slack = 65536;

  host() = default;
  /// Uses the instructions of `set`; where the CPU lacks them `validate` says so, and the verbs use narrower ones.
  explicit host(instruction_set set, std::size_t slack = default_slack) noexcept : wanted_{set}, slack_{slack} {}

  /// Throws `errc::bad_argument` when the CPU lacks the instruction set that was asked for.
  void validate() const {
    if (!detail::cpu_has(wanted_) && wanted_ != instruction_set::automatic) {
      throw error{errc::bad_argument,
                  "host: this CPU lacks the instruction set asked for; write host{} for the widest it has"};
    }
  }

  /// Every byte allocated through this object, scratch included.
  [[nodiscard]] std::size_t allocated_bytes() const noexcept { return allocated_ + scratch_.allocated_bytes(); }

  /// Pieces of which `select_top_k` had to read elements twice so far, since too few reached its guess. Rare; benches watch it.
  [[nodiscard]] std::uint64_t second_passes() { return scratch_.fixed().top_k.second_passes; }

  // -------------------------------------------------------------------------------------------------------------------
  // Memory

  /// `n` uninitialised values. Allocates.
  template <class T>
  [[nodiscard]] buffer<T> allocate(std::size_t n) {
    buffer<T> memory{n};
    allocated_ += n * sizeof(T);
    return memory;
  }

  // fill, copy, pack, unpack, write, read, wait: see `detail::host_memory_verbs`.

  /// `f(i, s[i]...)` for each i below n.
  template <class F, class... T>
  void for_each(std::size_t n, F f, span<T>... s) {
    assert(((s.size() >= n) && ...));
    detail::run_each(n, f, s.data()...);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Selections: one pass over a source. Pieces lie in it in order, without overlap.

  /// Scratch for selections from these pieces: O(largest `count` or `capacity`) and a constant. Allocates.
  template <class R, class I>
  void reserve_selection(std::span<piece const> pieces) {
    for (piece const& p : pieces) {
      auto const list = candidates<R, I>(p);
      bool const interleaved = grid_of(p).height != 1;
      if (interleaved) static_cast<void>(grid_memory<R>(p, list));
      if (interleaved || grid_of(p).run <= detail::longest_row) static_cast<void>(scratch_.row());
    }
  }

  /// Exactly the `count` first entries of each group; `kth[g]` is the last one's magnitude, 0 where count is 0.
  template <class T, class Formula, class I>
  void select_top_k(source<host, T, Formula> const& from, std::span<piece const> pieces,
                    entries_view<host, wide_t<T>, I> const& out, span<wide_t<T>> kth) {
    using R = wide_t<T>;
    assert(kth.size() >= total_groups(pieces));
    std::size_t used = 0;
    select_pieces(from, pieces, [&](std::size_t first_group, piece const& p) {
      std::size_t const groups = group_count(p);
      auto const least = kth.subspan(first_group, groups);
      std::size_t const most = std::min(p.count, p.capacity);
      if (most == 0) {
        std::fill(least.begin(), least.end(), R{0});
        return false;
      }
      auto list = candidates<R, I>(p);
      if (grid_of(p).height != 1) {
        used += detail::top_k_of_grid(from, p, most, list, grid_memory<R>(p, list), scratch_.row().faults,
                                      tail(out, used), least.data());
        return true;
      }
      if (grid_of(p).run <= detail::longest_row) {
        used += detail::top_k_of_rows(set_, from, p, scratch_.row(), scratch_.fixed().radix, tail(out, used),
                                      least.data());
        return true;
      }
      for (std::size_t g = 0; g < groups; ++g) {
        group const one = group_at(p, g);
        std::size_t const k = std::min({most, one.breadth, out.capacity() - used});
        if (k == 0) continue;
        least[g] = from_magnitude<R>(detail::top_k_of_run(from, one.first, one.breadth, k, list, scratch_.fixed().top_k,
                                                          out.indices.data() + used, out.values.data() + used));
        used += k;
      }
      return true;
    });
    out.count[0] = used;
  }

  /// The elements with |x| >= thresholds[g] and x != 0, cut by magnitude to the group's capacity; `counts[g]` is their number
  /// before the cut, or 2 * max(count, capacity) if that is less. A threshold that is not finite selects nothing.
  template <class T, class Formula, class I>
  void select_at_least(source<host, T, Formula> const& from, std::span<piece const> pieces,
                       span<std::type_identity_t<wide_t<T> const>> thresholds,
                       entries_view<host, wide_t<T>, I> const& out, span<std::size_t> counts) {
    using R = wide_t<T>;
    assert(thresholds.size() >= total_groups(pieces) && counts.size() >= total_groups(pieces));
    std::size_t used = 0;
    select_pieces(from, pieces, [&](std::size_t first_group, piece const& p) {
      std::size_t const groups = group_count(p);
      auto list = candidates<R, I>(p);
      if (grid_of(p).height != 1) {
        used += detail::at_least_of_grid(from, p, thresholds.subspan(first_group, groups), list,
                                         grid_memory<R>(p, list), tail(out, used), counts.subspan(first_group, groups));
        return true;
      }
      std::size_t const limit = 2 * std::max(p.count, p.capacity);
      for (std::size_t g = 0; g < groups; ++g) {
        group const one = group_at(p, g);
        list.clear(std::min(p.capacity, one.breadth), std::max<bits_t<R>>(1, magnitude(thresholds[first_group + g])));
        detail::threshold_sink<R, I> sink{list};
        detail::run_pass(set_, from, one.first, one.first + one.breadth, sink);
        counts[first_group + g] = list.was_cut ? limit : std::min(list.used, limit);
        used += take(list, out, used);
      }
      return true;
    });
    out.count[0] = used;
  }

  /// The elements for which `predicate(position, x)` holds, cut by magnitude to the group's capacity. Positions count from the
  /// gradient's begin.
  template <class T, class Formula, class Predicate, class I>
  void select_if(source<host, T, Formula> const& from, std::span<piece const> pieces, Predicate predicate,
                 entries_view<host, wide_t<T>, I> const& out) {
    using R = wide_t<T>;
    std::size_t used = 0;
    select_pieces(from, pieces, [&](std::size_t, piece const& p) {
      auto list = candidates<R, I>(p);
      if (grid_of(p).height != 1) {
        used += detail::select_if_of_grid(from, p, predicate, list, grid_memory<R>(p, list), tail(out, used));
        return true;
      }
      for (std::size_t g = 0; g < group_count(p); ++g) {
        group const one = group_at(p, g);
        list.clear(std::min(p.capacity, one.breadth), 0);
        detail::predicate_sink<R, I, Predicate> sink{list, predicate};
        detail::run_pass(set_, from, one.first, one.first + one.breadth, sink);
        used += take(list, out, used);
      }
      return true;
    });
    out.count[0] = used;
  }

  /// Scratch for `select_quotas`: O(all quotas). Allocates.
  template <class R, class I>
  void reserve_quotas(quotas const& wanted) {
    std::size_t const largest = wanted.where.largest();
    static_cast<void>(candidates<R, I>(piece{0, largest, std::min(largest, wanted.each), 0}));
    static_cast<void>(owners_of<R, I>(wanted));
    scratch_.reserve_merge(wanted.where.owners, sizeof(detail::merge_head<I>));
  }

  /// Exactly the `wanted.of(r)` first entries of each owner r's coordinates, zeros included.
  template <class T, class Formula, class I>
  void select_quotas(source<host, T, Formula> const& from, quotas const& wanted,
                     entries_view<host, wide_t<T>, I> const& out) {
    using R = wide_t<T>;
    assert(wanted.where.n == from.size() && wanted.total() <= out.capacity());
    set_ = detail::resolved(wanted_);
    std::size_t const total = wanted.total();
    if (wanted.where.is_contiguous()) {
      std::size_t used = 0;
      std::size_t first = 0;
      detail::no_sink nothing;
      for (std::size_t r = 0; r < wanted.where.owners; ++r) {
        std::size_t const size = wanted.where.size_of(r);
        std::size_t const k = wanted.of(r);
        piece const region{first, size, k, k};
        auto list = candidates<R, I>(region);
        if (k == 0) {
          detail::run_pass(set_, from, first, first + size, nothing);
        } else {
          detail::top_k_of_run(from, first, size, k, list, scratch_.fixed().top_k, out.indices.data() + used,
                               out.values.data() + used);
        }
        first += size;
        used += k;
      }
      out.count[0] = used;
      return;
    }
    auto const owners = owners_of<R, I>(wanted);
    piece const whole{0, from.size(), std::min(from.size(), total + total / 4), 0};
    auto list = candidates<R, I>(whole);
    bool merged = false;
    std::size_t const used = detail::quotas_of_run(from, wanted, list, owners, scratch_.fixed().top_k,
                                                   out.indices.data(), out.values.data(), merged);
    out.count[0] = used;
    if (merged) return;
    scratch_.reserve_merge(owners.size(), sizeof(detail::merge_head<I>));
    auto const range = [&](std::size_t r) {
      return detail::list_range<R, I>{owners[r].list.indices, owners[r].list.values, owners[r].list.used};
    };
    out.count[0] = detail::merge_many<R, I>(owners.size(), range, scratch_.template heads<detail::merge_head<I>>(),
                                            scratch_.positions(), out.indices.data(), out.values.data(),
                                            out.capacity());
  }

  /// `out[i]` becomes the accumulator; `out` may be the gradient.
  template <class T, class Formula>
  void accumulate(source<host, T, Formula> const& from, span<std::type_identity_t<wide_t<T>>> out) {
    assert(out.size() >= from.size());
    set_ = detail::resolved(wanted_);
    detail::dense_sink<wide_t<T>> sink{out.data()};
    detail::run_pass(set_, from, 0, from.size(), sink);
  }

  /// Fills the list's values with the accumulators at its indices, which increase strictly.
  template <class T, class Formula, class I>
  void select_at(source<host, T, Formula> const& from, entries_view<host, wide_t<T>, I> const& list) {
    auto const at = in_use(list);
    assert(at.size == 0 || at.indices[at.size - 1] < from.size());
    set_ = detail::resolved(wanted_);
    detail::lookup_sink<wide_t<T>, I> sink{at.indices, list.values.data(), at.size};
    detail::run_pass(set_, from, 0, from.size(), sink);
  }

  /// Of each group, the moments of its elements with |x| >= thresholds[g] and x != 0. Evaluates nothing. A group whose threshold is
  /// not finite is not read, and has none.
  template <class T, class Formula>
  void moments(source<host, T, Formula> const& from, std::span<piece const> pieces,
               span<std::type_identity_t<wide_t<T> const>> thresholds, span<topsum::moments> out) {
    using R = wide_t<T>;
    assert(thresholds.size() >= total_groups(pieces) && out.size() >= total_groups(pieces));
    instruction_set const set = detail::resolved(wanted_);
    each_group(pieces, [&](std::size_t g, piece const&, group const& where) {
      bits_t<R> const t = std::max<bits_t<R>>(1, magnitude(thresholds[g]));
      out[g] = t < nonfinite_magnitude<R> ? detail::moments_of(set, from, where, t) : topsum::moments{};
    });
  }

  /// Of each group, an estimate of the count-th magnitude from a sample, 0 where count is 0. Evaluates nothing.
  template <class T, class Formula>
  void sample_kth(source<host, T, Formula> const& from, std::span<piece const> pieces, sampling how,
                  span<std::type_identity_t<wide_t<T>>> out) {
    using R = wide_t<T>;
    assert(out.size() >= total_groups(pieces));
    each_group(pieces, [&](std::size_t g, piece const& p, group const& where) {
      std::size_t const n = where.size();
      std::size_t const k = std::min(p.count, n);
      out[g] = R{0};
      if (k == 0) return;
      std::size_t const elements = how.elements(n, k);
      std::size_t const rank = sampling::rank(elements, n, k);
      std::size_t const room = std::min(elements, 3 * rank) + 1;  // less than any selection reserves
      scratch_.reserve_candidates(0, room * sizeof(R));
      out[g] = detail::kth_of_sample(from, where, how, g, elements, rank, scratch_.template values<R>(), room);
    });
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Lists of entries. A target is none of the inputs unless said.

  /// Scratch for merging `lists` lists and for `top_of` lists of up to `longest` entries. Allocates.
  template <class R, class I>
  void reserve_lists(std::size_t lists, [[maybe_unused]] std::size_t longest) {
    scratch_.reserve_fixed();
    scratch_.reserve_merge(lists, sizeof(detail::merge_head<I>));
  }

  /// Union of the lists, equal indices summed in the order of the lists. `out` must have room for the union.
  template <class R, class I>
  void merge_sum(std::type_identity_t<std::span<entries_view<host, R, I> const>> lists,
                 entries_view<host, R, I> const& out) {
    auto const range = [&](std::size_t l) { return in_use(lists[l]); };
    scratch_.reserve_merge(lists.size(), sizeof(detail::merge_head<I>));
    out.count[0] = detail::merge_many<R, I>(lists.size(), range, scratch_.template heads<detail::merge_head<I>>(),
                                            scratch_.positions(), out.indices.data(), out.values.data(),
                                            out.capacity());
    assert(out.count[0] <= out.capacity());
  }

  /// The k first entries of a list; all where it has fewer. `out` may be `list`.
  template <class R, class I>
  void top_of(entries_view<host, R, I> const& list, std::size_t k, entries_view<host, R, I> const& out) {
    auto const from = in_use(list);
    std::size_t const kept = std::min(k, from.size);
    assert(kept <= out.capacity());
    if (kept != 0) {
      detail::extract(
          detail::resolved(wanted_),
          detail::extraction<R, I>{from.indices, from.values, from.size, out.indices.data(), out.values.data()}, kept,
          scratch_.fixed().radix);
    }
    out.count[0] = kept;
  }

  /// The entries of a whose index b has. `out` may be a.
  template <class R, class I>
  void intersect(entries_view<host, R, I> const& a, entries_view<host, R, I> const& b,
                 entries_view<host, R, I> const& out) {
    out.count[0] = detail::intersect(in_use(a), in_use(b), out.indices.data(), out.values.data());
  }

  /// The entries of a whose index b lacks. `out` may be a.
  template <class R, class I>
  void difference(entries_view<host, R, I> const& a, entries_view<host, R, I> const& b,
                  entries_view<host, R, I> const& out) {
    out.count[0] = detail::difference(in_use(a), in_use(b), out.indices.data(), out.values.data());
  }

  /// The entries with a magnitude above `t`, and the first `ties` of those equal to it. `out` may be `list`.
  template <class R, class I>
  void keep_at_least(entries_view<host, R, I> const& list, bits_t<R> t, std::size_t ties,
                     entries_view<host, R, I> const& out) {
    auto const from = in_use(list);
    out.count[0] = detail::compact<detail::portable_ops>(from.indices, from.values, from.size,
                                                         detail::magnitude_cut<R>{t, ties}, out.indices.data(),
                                                         out.values.data(), out.capacity());
  }

  /// out[0] entries with a magnitude above `t`, out[1] equal to it.
  template <class R, class I>
  void count_at_least(entries_view<host, R, I> const& list, bits_t<R> t, span<std::size_t> out) {
    auto const from = in_use(list);
    std::size_t above = 0;
    std::size_t equal = 0;
    for (std::size_t i = 0; i < from.size; ++i) {
      above += magnitude(from.values[i]) > t ? 1U : 0U;
      equal += magnitude(from.values[i]) == t ? 1U : 0U;
    }
    out[0] = above;
    out[1] = equal;
  }

  /// Entries by the `width` bits of their magnitude that follow the leading `known`, of those whose leading bits are prefix's.
  template <class R, class I>
  void histogram(entries_view<host, R, I> const& list, bits_t<R> prefix, int known, int width,
                 span<std::type_identity_t<I>> bins) {
    assert(bins.size() >= std::size_t{1} << width);
    detail::histogram(in_use(list), prefix, known, width, bins.data());
  }

  /// out[j] entries have an index below bounds[j].
  template <class R, class I>
  void lower_bounds(entries_view<host, R, I> const& list, span<std::uint64_t const> bounds, span<std::size_t> out) {
    auto const from = in_use(list);
    for (std::size_t j = 0; j < bounds.size(); ++j) {
      auto const below = [](I index, std::uint64_t bound) { return index < bound; };
      out[j] = static_cast<std::size_t>(std::lower_bound(from.indices, from.indices + from.size, bounds[j], below) -
                                        from.indices);
    }
  }

  /// out[i - 1] = index of entry floor(i m / parts) of m, for 0 < i < parts; floor(i n / parts) when there are no entries.
  template <class R, class I>
  void cuts(entries_view<host, R, I> const& list, std::size_t parts, std::size_t n, span<std::uint64_t> out) {
    auto const from = in_use(list);
    for (std::size_t i = 1; i < parts; ++i) {
      out[i - 1] = from.size == 0 ? detail::share(i, n, parts) : from.indices[detail::share(i, from.size, parts)];
    }
  }

  /// Empties the list and sets fault[0] to 1 unless its indices increase strictly and lie in [begin, end).
  template <class R, class I>
  void check(entries_view<host, R, I> const& list, std::size_t begin, std::size_t end, span<std::uint32_t> fault) {
    detail::list_range<R, I> const all{list.indices.data(), list.values.data(), list.count[0]};
    if (detail::well_formed(all, list.capacity(), begin, end)) return;
    list.count[0] = 0;
    fault[0] = 1;
  }

  /// value = dense[index], in the type of sums; what is not finite counts as zero.
  template <class R, class I, class T>
  void look_up(span<T const> dense, entries_view<host, R, I> const& list) {
    auto const at = in_use(list);
    for (std::size_t i = 0; i < at.size; ++i) {
      R const value = to_wide(dense[at.indices[i]]);
      list.values[i] = is_finite(value) ? value : R{0};
    }
  }
  /// dense[index] -= value.
  template <class R, class I>
  void subtract(entries_view<host, R, I> const& list, span<std::type_identity_t<R>> dense) {
    detail::scatter(in_use(list), dense.data(), [](R& x, R value) { x -= value; });
  }
  /// dense[index] += value.
  template <class R, class I>
  void add(entries_view<host, R, I> const& list, span<std::type_identity_t<R>> dense) {
    detail::scatter(in_use(list), dense.data(), [](R& x, R value) { x += value; });
  }
  /// dense[index] = value, rounded to the nearest `T`.
  template <class R, class I, class T>
    requires std::same_as<wide_t<T>, R>
  void assign(entries_view<host, R, I> const& list, span<T> dense) {
    detail::scatter(in_use(list), dense.data(), [](T& x, R value) { x = from_wide<T>(value); });
  }
  /// dense[index] = 0.
  template <class R, class I>
  void clear(entries_view<host, R, I> const& list, span<std::type_identity_t<R>> dense) {
    detail::scatter(in_use(list), dense.data(), [](R& x, R) { x = R{0}; });
  }
  /// Every value is divided.
  template <class R, class I>
  void divide(entries_view<host, R, I> const& list, std::type_identity_t<R> divisor) {
    std::size_t const used = in_use(list).size;
    for (R& value : list.values.first(used)) value /= divisor;
  }

  // Of owners; see `detail/host_quotas.hpp`.

  /// The list by owner, and by place in it; ends[r] entries go to owners up to r.
  template <class R, class I>
  void deal(entries_view<host, R, I> const& list, interleaving const& where, entries_view<host, R, I> const& out,
            span<std::size_t> ends) {
    auto const from = in_use(list);
    assert(from.size <= out.capacity() && ends.size() >= where.owners);
    detail::deal_list(from, where, out.indices.data(), out.values.data(), ends.data());
    out.count[0] = from.size;
  }
  /// An owner's places become positions.
  template <class R, class I>
  void positions(entries_view<host, R, I> const& list, interleaving const& where, std::size_t owner) {
    for (I& index : list.indices.first(in_use(list).size)) index = static_cast<I>(where.position_of(owner, index));
  }
  /// Adds zeros at the smallest indices that the list lacks until it has `count` entries.
  template <class R, class I>
  void pad(entries_view<host, R, I> const& list, std::size_t count) {
    assert(count <= list.capacity());
    detail::pad_list(list.indices.data(), list.values.data(), in_use(list).size, count);
    list.count[0] = std::max(list.count[0], count);
  }

  // Of the groups of pieces; see `detail/host_group_lists.hpp`.

  /// out[g] = magnitude of the `count`-th entry of the list in whole piece g; of its last one where it has fewer, 0 where none.
  template <class R, class I>
  void kth_of(entries_view<host, R, I> const& list, std::span<piece const> pieces, span<std::type_identity_t<R>> out) {
    assert(out.size() >= pieces.size());
    detail::kth_of_pieces(in_use(list), pieces, out.data());
  }
  /// Without the last entry, among those of magnitude kth[g], of each group g with drop[g] != 0. `out` may be `list`.
  template <class R, class I>
  void drop_last(entries_view<host, R, I> const& list, std::span<piece const> pieces,
                 span<std::type_identity_t<R> const> kth, span<std::type_identity_t<R>> drop,
                 entries_view<host, R, I> const& out) {
    assert(kth.size() >= total_groups(pieces) && drop.size() >= total_groups(pieces));
    out.count[0] = detail::drop_last(in_use(list), pieces, kth.data(), drop.data(), out.indices.data(),
                                     out.values.data());
  }
  /// out[0] = groups that have an entry in the list.
  template <class R, class I>
  void count_groups(entries_view<host, R, I> const& list, std::span<piece const> pieces, span<std::uint32_t> marks,
                    span<std::size_t> out) {
    assert(marks.size() >= total_groups(pieces));
    out[0] = detail::count_groups(in_use(list), pieces, marks.data());
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Messages; see `detail/host_codecs.hpp`.

  template <class I>
  void encode_bits(span<I const> indices, std::size_t first, int width, span<std::byte> out) {
    detail::encode_bits(indices, first, width, out.data());
  }
  template <class I>
  void decode_bits(span<std::byte const> in, std::size_t first, int width, span<I> indices) {
    detail::decode_bits(in, first, width, indices);
  }
  template <class I>
  void encode_elias_fano(span<I const> indices, std::size_t first, elias_fano_shape shape, span<std::byte> out) {
    detail::encode_elias_fano(indices, first, shape, out.data());
  }
  template <class I>
  void decode_elias_fano(span<std::byte const> in, std::size_t first, elias_fano_shape shape, span<I> indices) {
    detail::decode_elias_fano(in, first, shape, indices);
  }
  template <class I>
  void encode_bitmap(span<I const> indices, std::size_t first, span<std::byte> out) {
    detail::encode_bitmap(indices, first, out);
  }
  template <class I>
  void decode_bitmap(span<std::byte const> in, std::size_t first, span<I> indices) {
    detail::decode_bitmap(in, first, indices);
  }
  template <class I, class R, class Values>
  void quantise(span<I const> indices, span<R const> values, Values const& codec, span<std::byte> out) {
    detail::quantise(indices, values, codec, out.data());
  }
  template <class R, class Values>
  void dequantise(span<std::byte const> in, Values const& codec, span<R> values) {
    detail::dequantise(in, codec, values);
  }

 private:
  /// Calls `one(g, piece, group)` for each group of each piece; g counts them all.
  template <class One>
  static void each_group(std::span<piece const> pieces, One one) {
    std::size_t g = 0;
    for (piece const& p : pieces) {
      for (std::size_t i = 0; i < group_count(p); ++i) one(g++, p, group_at(p, i));
    }
  }

  template <class R, class I>
  static detail::list_range<R, I> in_use(entries_view<host, R, I> const& list) noexcept {
    assert(list.count[0] <= list.capacity());
    return {list.indices.data(), list.values.data(), list.count[0]};
  }

  /// An empty list of candidates for a piece.
  template <class R, class I>
  detail::candidate_list<R, I> candidates(piece const& p) {
    std::size_t const room = detail::candidate_room(p, slack_);
    std::size_t const size = room + detail::candidate_list<R, I>::overhang;
    scratch_.reserve_fixed();
    scratch_.reserve_candidates(size * sizeof(I), size * sizeof(R));
    return {scratch_.template indices<I>(), scratch_.template values<R>(), room, 0, 0, &scratch_.fixed().radix, set_};
  }

  /// An empty list for each owner, in memory of their own.
  template <class R, class I>
  std::span<detail::owner_candidates<R, I>> owners_of(quotas const& wanted) {
    using owner = detail::owner_candidates<R, I>;
    std::size_t const room = detail::owner_room(wanted);
    std::size_t const memory = (room + 2) / 2 * 2;  // even, so that either type is aligned behind the other
    piece const whole{0, wanted.where.n, std::min(wanted.where.n, wanted.total() + wanted.total() / 4), 0};
    static_cast<void>(candidates<R, I>(whole));
    std::byte* const at = scratch_.reserve_owners(wanted.where.owners, sizeof(owner), memory * (sizeof(I) + sizeof(R)));
    auto* const owners = reinterpret_cast<owner*>(at);
    std::byte* lists = at + (wanted.where.owners * sizeof(owner) + 63) / 64 * 64;
    for (std::size_t r = 0; r < wanted.where.owners; ++r) {
      auto* const values = reinterpret_cast<R*>(lists);
      auto* const indices = reinterpret_cast<I*>(lists + memory * sizeof(R));
      new (owners + r) owner{{indices, values, room, wanted.of(r), 0, &scratch_.fixed().radix, set_}, 0, 0};
      lists += (memory * (sizeof(R) + sizeof(I)) + 63) / 64 * 64;
    }
    return {owners, wanted.where.owners};
  }

  template <class R, class I>
  detail::grid_memory<R> grid_memory(piece const& p, detail::candidate_list<R, I> const& list) {
    return scratch_.template grid_of_piece<R>(p, list.room + detail::candidate_list<R, I>::overhang);
  }

  /// Appends what a piece may keep of its candidates to `out`; returns how many.
  template <class R, class I>
  static std::size_t take(detail::candidate_list<R, I>& list, entries_view<host, R, I> const& out, std::size_t used) {
    std::size_t const k = std::min({list.used, list.keep, out.capacity() - used});
    if (k == list.used) {
      move_bytes(out.indices.data() + used, list.indices, k * sizeof(I));
      move_bytes(out.values.data() + used, list.values, k * sizeof(R));
    } else if (k != 0) {
      list.extract(k, out.indices.data() + used, out.values.data() + used);
    }
    return k;
  }

  /// What is left of a list behind its first `used` entries.
  template <class R, class I>
  static detail::list_room<R, I> tail(entries_view<host, R, I> const& out, std::size_t used) noexcept {
    return {out.indices.data() + used, out.values.data() + used, out.capacity() - used};
  }

  /// Calls `one(first_group, piece)` for each piece in turn; evaluates what lies outside the pieces, and those for which it
  /// returns false.
  template <class T, class Formula, class One>
  void select_pieces(source<host, T, Formula> const& from, std::span<piece const> pieces, One one) {
    set_ = detail::resolved(wanted_);
    detail::no_sink nothing;
    std::size_t done = 0;
    std::size_t groups = 0;
    for (piece const& p : pieces) {
      if (p.size != 0) {
        assert(p.begin >= done && p.begin + p.size <= from.size());
        detail::run_pass(set_, from, done, p.begin, nothing);
        done = p.begin;
      }
      if (one(groups, p)) done += p.size;
      groups += group_count(p);
    }
    detail::run_pass(set_, from, done, from.size(), nothing);
  }

  instruction_set wanted_ = instruction_set::automatic;
  instruction_set set_ = instruction_set::portable;
  std::size_t slack_ = default_slack;
  std::size_t allocated_ = 0;
  detail::host_scratch scratch_;
};

}  // namespace topsum

#endif
