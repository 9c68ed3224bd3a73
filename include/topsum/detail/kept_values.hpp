// SPDX-License-Identifier: BSL-1.0
/// \file
/// The memory of residual stores: vectors that a step replaces, and with roll-back what they were before it.
#ifndef TOPSUM_DETAIL_KEPT_VALUES_HPP
#define TOPSUM_DETAIL_KEPT_VALUES_HPP

#include <array>
#include <cstddef>
#include <utility>

namespace topsum::detail {

/// `Vectors` vectors of n values of type R, zero at first. Without roll-back a step works in place; with it (twice the memory) a
/// step works in the second set, `commit` swaps the sets and `discard` swaps them back.
template <class B, class R, std::size_t Vectors>
class kept_values {
 public:
  kept_values(B& backend, std::size_t n, bool rolls_back) : rolls_back_{rolls_back} {
    for (auto& vector : current_) {
      vector = backend.template allocate<R>(n);
      backend.fill(vector.view(), R{0});
    }
    if (!rolls_back) return;
    for (auto& vector : next_) vector = backend.template allocate<R>(n);
  }

  /// Vector j after the last completed step.
  [[nodiscard]] auto current(std::size_t j = 0) { return current_[j].view(); }
  /// Where vector j of this step comes into being.
  [[nodiscard]] auto next(std::size_t j = 0) { return rolls_back_ ? next_[j].view() : current_[j].view(); }
  /// The step is complete.
  void commit() noexcept {
    if (rolls_back_) std::swap(current_, next_);
  }
  /// Undoes the last `commit`; with roll-back only, and only while no step has begun since.
  void discard() noexcept {
    if (rolls_back_) std::swap(current_, next_);
  }

 protected:
  typename B::template buffer<R>& kept(std::size_t j) noexcept { return current_[j]; }

 private:
  using buffers = std::array<typename B::template buffer<R>, Vectors>;
  buffers current_;
  buffers next_;
  bool rolls_back_;
};

}  // namespace topsum::detail

#endif
