// SPDX-License-Identifier: BSL-1.0
/// \file
/// A sparse vector in a backend's memory: increasing indices, parallel values, and a count that lives beside them.
#ifndef TOPSUM_CORE_ENTRIES_HPP
#define TOPSUM_CORE_ENTRIES_HPP

#include <cstddef>

namespace topsum {

/// View of a list of entries. `indices` and `values` have the capacity's size; `count` is one number in the
/// backend's memory (a span of one), which says how many are in use. Indices in use increase strictly.
template <class B, class R, class I>
struct entries_view {
  typename B::template span<I> indices;
  typename B::template span<R> values;
  typename B::template span<std::size_t> count;

  [[nodiscard]] std::size_t capacity() const noexcept { return indices.size(); }
};

/// Owned list of entries, allocated once.
template <class B, class R, class I>
class entries {
 public:
  entries() = default;
  /// Room for `capacity` entries; the count is 0. Allocates.
  entries(B& backend, std::size_t capacity)
      : indices_{backend.template allocate<I>(capacity)},
        values_{backend.template allocate<R>(capacity)},
        count_{backend.template allocate<std::size_t>(1)} {
    backend.fill(count_.view(), std::size_t{0});
  }

  [[nodiscard]] entries_view<B, R, I> view() { return {indices_.view(), values_.view(), count_.view()}; }
  [[nodiscard]] std::size_t capacity() const noexcept { return indices_.size(); }

 private:
  typename B::template buffer<I> indices_;
  typename B::template buffer<R> values_;
  typename B::template buffer<std::size_t> count_;
};

/// A stretch of a list whose size the host knows: what a codec encodes.
template <class B, class R, class I>
struct entries_run {
  typename B::template span<I const> indices;
  typename B::template span<R const> values;

  [[nodiscard]] std::size_t size() const noexcept { return indices.size(); }
};

/// Entries [first, first + count) of a list.
template <class B, class R, class I>
[[nodiscard]] entries_run<B, R, I> run_of(entries_view<B, R, I> const& list, std::size_t first, std::size_t count) {
  return {list.indices.subspan(first, count), list.values.subspan(first, count)};
}

}  // namespace topsum

#endif
