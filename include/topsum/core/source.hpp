// SPDX-License-Identifier: BSL-1.0
/// \file
/// What a selection reads: accumulators that come into being during the one pass that selects from them.
#ifndef TOPSUM_CORE_SOURCE_HPP
#define TOPSUM_CORE_SOURCE_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <topsum/core/value.hpp>

namespace topsum {

/// What a pass saw that is not finite; one record in the backend's memory. `first` is the smallest such position.
struct nonfinite_record {
  std::uint64_t count = 0;
  std::uint64_t first = ~std::uint64_t{0};
};

/// The accumulators of one step: element i is `formula(gradient[i], {states_in[0][i], ...})`, which also replaces the states.
///
/// A backend evaluates each element exactly once a step, in the pass that selects. `formula` is a pure function
/// `R operator()(T gradient, std::array<R, states>& state)` with `static constexpr std::size_t states` and
/// `static constexpr std::size_t accumulator`: the state that holds the accumulator afterwards (for rescans).
/// Where the accumulator is not finite, the states keep their old values, the element counts as zero, and `fault` records it.
/// In place when `states_out` is `states_in`.
template <class B, class T, class Formula>
struct source {
  using backend = B;
  using gradient_type = T;
  using value_type = wide_t<T>;
  using formula_type = Formula;
  static constexpr std::size_t states = Formula::states;

  typename B::template span<T const> gradient;
  std::array<typename B::template span<value_type const>, states> states_in;
  std::array<typename B::template span<value_type>, states> states_out;
  Formula formula;
  typename B::template span<nonfinite_record> fault;

  [[nodiscard]] std::size_t size() const noexcept { return gradient.size(); }
};

/// acc = gradient: no residual.
template <class T>
struct plain_gradient {
  static constexpr std::size_t states = 0;
  static constexpr std::size_t accumulator = 0;
  constexpr wide_t<T> operator()(T gradient, std::array<wide_t<T>, 0>&) const noexcept { return to_wide(gradient); }
};

/// acc = decay * residual + gradient: error feedback.
template <class T>
struct decayed_residual_sum {
  static constexpr std::size_t states = 1;
  static constexpr std::size_t accumulator = 0;
  wide_t<T> decay = 1;
  constexpr wide_t<T> operator()(T gradient, std::array<wide_t<T>, 1>& state) const noexcept {
    state[0] = multiply_then_add(decay, state[0], to_wide(gradient));
    return state[0];
  }
};

}  // namespace topsum

#endif
