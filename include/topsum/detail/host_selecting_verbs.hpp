// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host backend's verbs over sources, and the scratch in which they work.
#ifndef TOPSUM_DETAIL_HOST_SELECTING_VERBS_HPP
#define TOPSUM_DETAIL_HOST_SELECTING_VERBS_HPP

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include <topsum/core/entries.hpp>
#include <topsum/core/interleaving.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_grid.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_list_verbs.hpp>
#include <topsum/detail/host_memory.hpp>
#include <topsum/detail/host_merge.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_quotas.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rows.hpp>
#include <topsum/detail/host_scratch.hpp>
#include <topsum/detail/host_statistics.hpp>
#include <topsum/detail/host_top_k.hpp>

namespace topsum {

class host;

namespace detail {

/// Verbs over sources, see `selecting_backend`: one pass each. Pieces lie in a source in order, without overlap.
class host_selecting_verbs {
  template <class T>
  using span = host_span<T>;

 public:
  /// Spare room for candidates of a piece: more costs memory, less costs time on inputs with many ties.
  static constexpr std::size_t default_slack = 65536;

  host_selecting_verbs() = default;
  host_selecting_verbs(instruction_set set, std::size_t slack) noexcept : wanted_{set}, slack_{slack} {}

  /// Scratch for selections from these pieces: O(largest `count` or `capacity`) and a constant. Allocates.
  template <class R, class I>
  void reserve_selection(std::span<piece const> pieces) {
    for (piece const& p : pieces) {
      auto const list = candidates<R, I>(p);
      bool const interleaved = grid_of(p).height != 1;
      if (interleaved) static_cast<void>(grid_memory<R>(p, list));
      if (interleaved || grid_of(p).run <= longest_row) static_cast<void>(scratch_.row());
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
        used += top_k_of_grid(from, p, most, list, grid_memory<R>(p, list), scratch_.row().faults, tail(out, used),
                              least.data());
        return true;
      }
      if (grid_of(p).run <= longest_row) {
        used += top_k_of_rows(set_, from, p, scratch_.row(), scratch_.fixed().radix, tail(out, used), least.data());
        return true;
      }
      for (std::size_t g = 0; g < groups; ++g) {
        group const one = group_at(p, g);
        std::size_t const k = std::min({most, one.breadth, out.capacity() - used});
        if (k == 0) continue;
        least[g] = from_magnitude<R>(top_k_of_run(from, one.first, one.breadth, k, list, scratch_.fixed().top_k,
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
        used += at_least_of_grid(from, p, thresholds.subspan(first_group, groups), list, grid_memory<R>(p, list),
                                 tail(out, used), counts.subspan(first_group, groups));
        return true;
      }
      std::size_t const limit = 2 * std::max(p.count, p.capacity);
      for (std::size_t g = 0; g < groups; ++g) {
        group const one = group_at(p, g);
        list.clear(std::min(p.capacity, one.breadth), std::max<bits_t<R>>(1, magnitude(thresholds[first_group + g])));
        threshold_sink<R, I> sink{list};
        run_pass(set_, from, one.first, one.first + one.breadth, sink);
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
        used += select_if_of_grid(from, p, predicate, list, grid_memory<R>(p, list), tail(out, used));
        return true;
      }
      for (std::size_t g = 0; g < group_count(p); ++g) {
        group const one = group_at(p, g);
        list.clear(std::min(p.capacity, one.breadth), 0);
        predicate_sink<R, I, Predicate> sink{list, predicate};
        run_pass(set_, from, one.first, one.first + one.breadth, sink);
        used += take(list, out, used);
      }
      return true;
    });
    out.count[0] = used;
  }

  /// Scratch for `select_quotas`: O(all quotas). Allocates.
  template <class R, class I>
  void reserve_quotas(quotas const& wanted) {
    if (wanted.where.is_contiguous()) {
      std::size_t const largest = wanted.where.largest();
      static_cast<void>(candidates<R, I>(piece{0, largest, std::min(largest, wanted.each), 0}));
      return;
    }
    static_cast<void>(quota_memory<R, I>(wanted));
    scratch_.reserve_merge(wanted.where.owners + 1, sizeof(merge_head<I>));
  }

  /// Exactly the `wanted.of(r)` first entries of each owner r's coordinates, zeros included.
  template <class T, class Formula, class I>
  void select_quotas(source<host, T, Formula> const& from, quotas const& wanted,
                     entries_view<host, wide_t<T>, I> const& out) {
    using R = wide_t<T>;
    assert(wanted.where.n == from.size() && wanted.total() <= out.capacity());
    set_ = resolved(wanted_);
    std::size_t const total = wanted.total();
    if (wanted.where.is_contiguous()) {
      std::size_t used = 0;
      std::size_t first = 0;
      no_sink nothing;
      for (std::size_t r = 0; r < wanted.where.owners; ++r) {
        std::size_t const size = wanted.where.size_of(r);
        std::size_t const k = wanted.of(r);
        piece const region{first, size, k, k};
        auto list = candidates<R, I>(region);
        if (k == 0) {
          run_pass(set_, from, first, first + size, nothing);
        } else {
          top_k_of_run(from, first, size, k, list, scratch_.fixed().top_k, out.indices.data() + used,
                       out.values.data() + used);
        }
        first += size;
        used += k;
      }
      out.count[0] = used;
      return;
    }
    auto const memory = quota_memory<R, I>(wanted);
    auto list = candidates<R, I>(quota_room(wanted));
    quotas_of_run(from, wanted, list, memory, scratch_.fixed().top_k, out.indices.data(), out.values.data(),
                  [&](std::size_t lists, auto range, I* indices, R* values) {
                    scratch_.reserve_merge(lists, sizeof(merge_head<I>));
                    merge_many<R, I>(lists, range, scratch_.template heads<merge_head<I>>(), scratch_.positions(),
                                     indices, values, out.capacity());
                  });
    out.count[0] = total;
  }

  /// `out[i]` becomes the accumulator; `out` may be the gradient.
  template <class T, class Formula>
  void accumulate(source<host, T, Formula> const& from, span<std::type_identity_t<wide_t<T>>> out) {
    assert(out.size() >= from.size());
    set_ = resolved(wanted_);
    dense_sink<wide_t<T>> sink{out.data()};
    run_pass(set_, from, 0, from.size(), sink);
  }

  /// Fills the list's values with the accumulators at its indices, which increase strictly.
  template <class T, class Formula, class I>
  void select_at(source<host, T, Formula> const& from, entries_view<host, wide_t<T>, I> const& list) {
    auto const at = in_use(list);
    assert(at.size == 0 || at.indices[at.size - 1] < from.size());
    set_ = resolved(wanted_);
    lookup_sink<wide_t<T>, I> sink{at.indices, list.values.data(), at.size};
    run_pass(set_, from, 0, from.size(), sink);
  }

  /// Of each group, the moments of its elements with |x| >= thresholds[g] and x != 0. Evaluates nothing. A group whose threshold is
  /// not finite is not read, and has none.
  template <class T, class Formula>
  void moments(source<host, T, Formula> const& from, std::span<piece const> pieces,
               span<std::type_identity_t<wide_t<T> const>> thresholds, span<topsum::moments> out) {
    using R = wide_t<T>;
    assert(thresholds.size() >= total_groups(pieces) && out.size() >= total_groups(pieces));
    instruction_set const set = resolved(wanted_);
    each_group(pieces, [&](std::size_t g, piece const&, group const& where) {
      bits_t<R> const t = std::max<bits_t<R>>(1, magnitude(thresholds[g]));
      out[g] = t < nonfinite_magnitude<R> ? moments_of(set, from, where, t) : topsum::moments{};
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
      out[g] = kth_of_sample(from, where, how, g, elements, rank, scratch_.template values<R>(), room);
    });
  }

 protected:
  instruction_set wanted_ = instruction_set::automatic;
  instruction_set set_ = instruction_set::portable;
  std::size_t slack_ = default_slack;
  host_scratch scratch_;

 private:
  /// Calls `one(g, piece, group)` for each group of each piece; g counts them all.
  template <class One>
  static void each_group(std::span<piece const> pieces, One one) {
    std::size_t g = 0;
    for (piece const& p : pieces) {
      for (std::size_t i = 0; i < group_count(p); ++i) one(g++, p, group_at(p, i));
    }
  }

  /// An empty list of candidates for a piece.
  template <class R, class I>
  candidate_list<R, I> candidates(piece const& p) {
    return candidates<R, I>(candidate_room(p, slack_));
  }
  template <class R, class I>
  candidate_list<R, I> candidates(std::size_t room) {
    reserve_candidates<R, I>(room + candidate_list<R, I>::overhang);
    return {scratch_.template indices<I>(), scratch_.template values<R>(), room, 0, 0, &scratch_.fixed().radix, set_};
  }
  template <class R, class I>
  void reserve_candidates(std::size_t size) {
    scratch_.reserve_fixed();
    scratch_.reserve_candidates(size * sizeof(I), size * sizeof(R));
  }

  /// Entries of all owners together that are kept before they are dealt: twice what is expected, and half the slack, since
  /// each is written down twice.
  [[nodiscard]] std::size_t quota_room(quotas const& wanted) const noexcept {
    return std::min(wanted.where.n, 2 * guessed_entries(wanted) + slack_ / 2);
  }

  /// Scratch for what is kept of each owner's coordinates; the owners' own lists are empty. Behind the candidates lie their
  /// owners, and their values by owner.
  template <class R, class I>
  quota_scratch<R, I> quota_memory(quotas const& wanted) {
    using share = owner_share<R, I>;
    std::size_t const owners = wanted.where.owners;
    std::size_t const room = owner_room(wanted) + 1;
    std::size_t const values_at = (owners * sizeof(share) + 63) / 64 * 64;
    std::size_t const indices_at = values_at + (owners * room * sizeof(R) + 63) / 64 * 64;
    std::byte* const memory = scratch_.reserve_owners(indices_at + owners * room * sizeof(I));
    auto* const shares = reinterpret_cast<share*>(memory);
    auto* const values = reinterpret_cast<R*>(memory + values_at);
    auto* const indices = reinterpret_cast<I*>(memory + indices_at);
    std::size_t const candidates = quota_room(wanted) + candidate_list<R, I>::overhang;
    reserve_candidates<R, I>(2 * candidates);
    for (std::size_t r = 0; r < owners; ++r) {
      new (shares + r)
          share{{indices + r * room, values + r * room, room - 1, wanted.of(r), 0, &scratch_.fixed().radix, set_}};
    }
    return {{shares, owners},
            reinterpret_cast<std::uint32_t*>(scratch_.template indices<I>() + candidates),
            scratch_.template values<R>() + candidates};
  }

  template <class R, class I>
  grid_memory<R> grid_memory(piece const& p, candidate_list<R, I> const& list) {
    return scratch_.template grid_of_piece<R>(p, list.room + candidate_list<R, I>::overhang);
  }

  /// Appends what a piece may keep of its candidates to `out`; returns how many.
  template <class R, class I>
  static std::size_t take(candidate_list<R, I>& list, entries_view<host, R, I> const& out, std::size_t used) {
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
  static list_room<R, I> tail(entries_view<host, R, I> const& out, std::size_t used) noexcept {
    return {out.indices.data() + used, out.values.data() + used, out.capacity() - used};
  }

  /// Calls `one(first_group, piece)` for each piece in turn; evaluates what lies outside the pieces, and those for which it
  /// returns false.
  template <class T, class Formula, class One>
  void select_pieces(source<host, T, Formula> const& from, std::span<piece const> pieces, One one) {
    set_ = resolved(wanted_);
    no_sink nothing;
    std::size_t done = 0;
    std::size_t groups = 0;
    for (piece const& p : pieces) {
      if (p.size != 0) {
        assert(p.begin >= done && p.begin + p.size <= from.size());
        run_pass(set_, from, done, p.begin, nothing);
        done = p.begin;
      }
      if (one(groups, p)) done += p.size;
      groups += group_count(p);
    }
    run_pass(set_, from, done, from.size(), nothing);
  }
};

}  // namespace detail
}  // namespace topsum

#endif
