// SPDX-License-Identifier: BSL-1.0
/// \file
/// Memory that the host backend's verbs work in: reserved ahead, not copied along.
#ifndef TOPSUM_DETAIL_HOST_SCRATCH_HPP
#define TOPSUM_DETAIL_HOST_SCRATCH_HPP

#include <cstddef>
#include <memory>
#include <utility>

#include <topsum/core/memory.hpp>
#include <topsum/detail/host_candidates.hpp>

namespace topsum::detail {

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
    return indices_.size() + values_.size() + heads_.size() + positions_.size() * sizeof(std::size_t) +
           (fixed_ ? sizeof(selection_scratch) : 0);
  }

  void reserve_fixed() {
    if (!fixed_) fixed_.reset(new selection_scratch);  // uninitialised on purpose
  }
  void reserve_candidates(std::size_t index_bytes, std::size_t value_bytes) {
    grow(indices_, index_bytes);
    grow(values_, value_bytes);
  }
  void reserve_merge(std::size_t lists, std::size_t head_bytes) {
    grow(heads_, lists * head_bytes);
    grow(positions_, lists);
  }

  /// The part of fixed size.
  [[nodiscard]] selection_scratch& fixed() {
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
  host_buffer<std::size_t> positions_;
  std::unique_ptr<selection_scratch> fixed_;
};

}  // namespace topsum::detail

#endif
