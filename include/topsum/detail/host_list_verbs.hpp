// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host's verbs over lists of entries that need no scratch.
#ifndef TOPSUM_DETAIL_HOST_LIST_VERBS_HPP
#define TOPSUM_DETAIL_HOST_LIST_VERBS_HPP

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <topsum/core/entries.hpp>
#include <topsum/core/interleaving.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_group_lists.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_lists.hpp>
#include <topsum/detail/host_quotas.hpp>
#include <topsum/detail/host_radix.hpp>

namespace topsum {

class host;

namespace detail {

/// The entries that a list has.
template <class R, class I>
[[nodiscard]] list_range<R, I> in_use(entries_view<host, R, I> const& list) noexcept {
  assert(list.count[0] <= list.capacity());
  return {list.indices.data(), list.values.data(), list.count[0]};
}

/// Verbs over lists, see `list_backend`. A target is none of the inputs unless said.
class host_list_verbs {
 public:
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
    out.count[0] = compact<portable_ops>(from.indices, from.values, from.size, magnitude_cut<R>{t, ties},
                                         out.indices.data(), out.values.data(), out.capacity());
  }

  /// out[0] entries with a magnitude above `t`, out[1] equal to it.
  template <class R, class I>
  void count_at_least(entries_view<host, R, I> const& list, bits_t<R> t, host_span<std::size_t> out) {
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
                 host_span<std::type_identity_t<I>> bins) {
    assert(bins.size() >= std::size_t{1} << width);
    detail::histogram(in_use(list), prefix, known, width, bins.data());
  }

  /// out[j] entries have an index below bounds[j].
  template <class R, class I>
  void lower_bounds(entries_view<host, R, I> const& list, host_span<std::uint64_t const> bounds,
                    host_span<std::size_t> out) {
    auto const from = in_use(list);
    for (std::size_t j = 0; j < bounds.size(); ++j) {
      auto const below = [](I index, std::uint64_t bound) { return index < bound; };
      out[j] = static_cast<std::size_t>(std::lower_bound(from.indices, from.indices + from.size, bounds[j], below) -
                                        from.indices);
    }
  }

  /// out[i - 1] = index of entry floor(i m / parts) of m, for 0 < i < parts; floor(i n / parts) when there are no entries.
  template <class R, class I>
  void cuts(entries_view<host, R, I> const& list, std::size_t parts, std::size_t n, host_span<std::uint64_t> out) {
    auto const from = in_use(list);
    for (std::size_t i = 1; i < parts; ++i) {
      out[i - 1] = from.size == 0 ? share(i, n, parts) : from.indices[share(i, from.size, parts)];
    }
  }

  /// Empties the list and sets fault[0] to 1 unless its indices increase strictly and lie in [begin, end).
  template <class R, class I>
  void check(entries_view<host, R, I> const& list, std::size_t begin, std::size_t end, host_span<std::uint32_t> fault) {
    list_range<R, I> const all{list.indices.data(), list.values.data(), list.count[0]};
    if (well_formed(all, list.capacity(), begin, end)) return;
    list.count[0] = 0;
    fault[0] = 1;
  }

  /// value = dense[index], in the type of sums; what is not finite counts as zero.
  template <class R, class I, class T>
  void look_up(host_span<T const> dense, entries_view<host, R, I> const& list) {
    auto const at = in_use(list);
    for (std::size_t i = 0; i < at.size; ++i) {
      R const value = to_wide(dense[at.indices[i]]);
      list.values[i] = is_finite(value) ? value : R{0};
    }
  }
  /// dense[index] -= value.
  template <class R, class I>
  void subtract(entries_view<host, R, I> const& list, host_span<std::type_identity_t<R>> dense) {
    scatter(in_use(list), dense.data(), [](R& x, R value) { x -= value; });
  }
  /// dense[index] += value.
  template <class R, class I>
  void add(entries_view<host, R, I> const& list, host_span<std::type_identity_t<R>> dense) {
    scatter(in_use(list), dense.data(), [](R& x, R value) { x += value; });
  }
  /// dense[index] = value, rounded to the nearest `T`.
  template <class R, class I, class T>
    requires std::same_as<wide_t<T>, R>
  void assign(entries_view<host, R, I> const& list, host_span<T> dense) {
    scatter(in_use(list), dense.data(), [](T& x, R value) { x = from_wide<T>(value); });
  }
  /// dense[index] = 0.
  template <class R, class I>
  void clear(entries_view<host, R, I> const& list, host_span<std::type_identity_t<R>> dense) {
    scatter(in_use(list), dense.data(), [](R& x, R) { x = R{0}; });
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
            host_span<std::size_t> ends) {
    auto const from = in_use(list);
    assert(from.size <= out.capacity() && ends.size() >= where.owners);
    deal_list(from, where, out.indices.data(), out.values.data(), ends.data());
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
    pad_list(list.indices.data(), list.values.data(), in_use(list).size, count);
    list.count[0] = std::max(list.count[0], count);
  }

  // Of the groups of pieces; see `detail/host_group_lists.hpp`.

  /// out[g] = magnitude of the `count`-th entry of the list in whole piece g; of its last one where it has fewer, 0 where none.
  template <class R, class I>
  void kth_of(entries_view<host, R, I> const& list, std::span<piece const> pieces,
              host_span<std::type_identity_t<R>> out) {
    assert(out.size() >= pieces.size());
    kth_of_pieces(in_use(list), pieces, out.data());
  }
  /// Without the last entry, among those of magnitude kth[g], of each group g with drop[g] != 0. `out` may be `list`.
  template <class R, class I>
  void drop_last(entries_view<host, R, I> const& list, std::span<piece const> pieces,
                 host_span<std::type_identity_t<R> const> kth, host_span<std::type_identity_t<R>> drop,
                 entries_view<host, R, I> const& out) {
    assert(kth.size() >= total_groups(pieces) && drop.size() >= total_groups(pieces));
    out.count[0] = detail::drop_last(in_use(list), pieces, kth.data(), drop.data(), out.indices.data(),
                                     out.values.data());
  }
  /// out[0] = groups that have an entry in the list.
  template <class R, class I>
  void count_groups(entries_view<host, R, I> const& list, std::span<piece const> pieces, host_span<std::uint32_t> marks,
                    host_span<std::size_t> out) {
    assert(marks.size() >= total_groups(pieces));
    out[0] = detail::count_groups(in_use(list), pieces, marks.data());
  }
};

}  // namespace detail
}  // namespace topsum

#endif
