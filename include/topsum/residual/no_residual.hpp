// SPDX-License-Identifier: BSL-1.0
/// \file
/// Residual: none.
#ifndef TOPSUM_RESIDUAL_NO_RESIDUAL_HPP
#define TOPSUM_RESIDUAL_NO_RESIDUAL_HPP

#include <cstddef>
#include <string_view>

#include <topsum/core/entries.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Residual: what did not travel is forgotten. The default under `dense`, where everything travels; elsewhere training
/// usually needs `error_feedback`. Takes no memory.
struct no_residual {
  using stage_tag = residual_tag;
  static constexpr std::string_view name = "no_residual";
  static constexpr bool keeps = false;

  template <class B, class T>
  struct state {
    state(B&, std::size_t, no_residual const&) {}
  };

  void validate() const noexcept {}

  template <class B, class T>
  [[nodiscard]] source<B, T, plain_gradient<T>> accumulate(B&, typename B::template span<T const> gradient,
                                                           state<B, T>&,
                                                           typename B::template span<nonfinite_record> fault) const {
    return {gradient, {}, {}, {}, fault};
  }
  /// This step's gradient at the list's indices.
  template <class B, class T, class R, class I>
  void look_up(B& backend, state<B, T>&, typename B::template span<T const> gradient,
               entries_view<B, R, I> list) const {
    backend.look_up(gradient, list);
  }
  template <class B, class T, class R, class I>
  void keep(B&, state<B, T>&, entries_view<B, R, I>) const noexcept {}
  template <class B, class T, class R, class I>
  void take_back(B&, state<B, T>&, entries_view<B, R, I>) const noexcept {}
  template <class B, class T>
  void keep_dense(B&, state<B, T>&, typename B::template span<wide_t<T>>) const noexcept {}
  template <class B, class T>
  void commit(state<B, T>&) const noexcept {}
  [[nodiscard]] bool rolls_back() const noexcept { return true; }  // nothing is kept, so nothing is left over
  template <class B, class T>
  void discard(state<B, T>&) const noexcept {}
};

}  // namespace topsum

#endif
