// SPDX-License-Identifier: BSL-1.0
/// \file
/// The backend on which data live in host memory and loops run on the calling thread.
#ifndef TOPSUM_BACKEND_HOST_HPP
#define TOPSUM_BACKEND_HOST_HPP

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <topsum/core/entries.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_codecs.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_list_verbs.hpp>
#include <topsum/detail/host_memory.hpp>
#include <topsum/detail/host_merge.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_selecting_verbs.hpp>
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
class host : public detail::host_memory_verbs,
             public detail::host_selecting_verbs,
             public detail::host_list_verbs,
             public detail::host_coding_verbs {
 public:
  using stage_tag = backend_tag;
  using instruction_set = topsum::instruction_set;
  static constexpr std::string_view name = "host";

  template <class T>
  using span = host_span<T>;
  template <class T>
  using buffer = host_buffer<T>;

  host() = default;
  /// Uses the instructions of `set`; where the CPU lacks them `validate` says so, and the verbs use narrower ones.
  explicit host(instruction_set set, std::size_t slack = default_slack) noexcept : host_selecting_verbs{set, slack} {}

  /// Throws `errc::bad_argument` when the CPU lacks the instruction set that was asked for.
  void validate() const {
    if (!detail::cpu_has(wanted_) && wanted_ != instruction_set::automatic) {
      throw error{errc::bad_argument,
                  "host: this CPU lacks the instruction set asked for; write host{} for the widest it has"};
    }
  }

  /// Every byte allocated through this object, scratch included.
  [[nodiscard]] std::size_t allocated_bytes() const noexcept { return allocated_ + scratch_.allocated_bytes(); }

  /// How often elements were read twice so far, since too few of a piece (`select_top_k`) or of an owner (`select_quotas`) reached a
  /// guess. Rare; benches watch it.
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

  // Selections: see `detail::host_selecting_verbs`.

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
    auto const range = [&](std::size_t l) { return detail::in_use(lists[l]); };
    scratch_.reserve_merge(lists.size(), sizeof(detail::merge_head<I>));
    out.count[0] = detail::merge_many<R, I>(lists.size(), range, scratch_.template heads<detail::merge_head<I>>(),
                                            scratch_.positions(), out.indices.data(), out.values.data(),
                                            out.capacity());
    assert(out.count[0] <= out.capacity());
  }

  /// The k first entries of a list; all where it has fewer. `out` may be `list`.
  template <class R, class I>
  void top_of(entries_view<host, R, I> const& list, std::size_t k, entries_view<host, R, I> const& out) {
    auto const from = detail::in_use(list);
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

  // The verbs that need no scratch: see `detail::host_list_verbs`, and `detail::host_coding_verbs` for messages.

 private:
  std::size_t allocated_ = 0;
};

}  // namespace topsum

#endif
