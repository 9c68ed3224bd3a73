// SPDX-License-Identifier: BSL-1.0
/// \file
/// What an exchange is asked to do, and what it answers.
#ifndef TOPSUM_EXCHANGE_SHAPE_HPP
#define TOPSUM_EXCHANGE_SHAPE_HPP

#include <concepts>
#include <cstddef>
#include <optional>

#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>

namespace topsum {

/// What an exchange is asked to do: the shape that all ranks agreed on.
struct exchange_shape {
  std::size_t n = 0;         ///< values in the gradient
  std::size_t capacity = 0;  ///< k: entries that a rank may select
  int rank = 0;
  int ranks = 1;
  bool by_quota = false;      ///< whether the selection is made by the exchange's own quotas, exactly
  bool contributors = false;  ///< whether the reduction asks how many ranks sent each entry
};

/// An exchange's answer, in the backend's memory.
template <class B, class R, class I>
struct exchange_outcome {
  /// Sums over ranks, the same on every rank.
  entries_view<B, R, I> result;
  /// This rank's entries that left its residual, with the values that receivers decoded: those in the result, and those whose
  /// sums some rank lists as `returned`.
  entries_view<B, R, I> applied;
  /// Entries of this rank that travelled or stayed with it as owner.
  std::size_t sent = 0;
  /// Sums, of any ranks' entries, that are not in the result and that no sender keeps: they go to this rank's residual. Also what
  /// encoding a sum of the result lost.
  std::optional<entries_view<B, R, I>> returned{};
  /// Where the shape asks for it: at the result's indices, how many ranks sent an entry.
  std::optional<entries_view<B, R, I>> contributors{};
};

namespace detail {

/// An exchange's new state for this shape; some are shaped by the exchange's parameters too.
template <class State, class X>
[[nodiscard]] State new_exchange_state(exchange_shape const& s, X const& exchange) {
  if constexpr (std::constructible_from<State, exchange_shape const&, X const&>) {
    return State{s, exchange};
  } else {
    return State{s};
  }
}

/// Whether a loaded state can be one of this shape.
template <class State>
[[nodiscard]] bool exchange_state_fits(State const& state, exchange_shape const& s) {
  if constexpr (requires { state.fits(s); }) {
    return state.fits(s);
  } else {
    return true;
  }
}

}  // namespace detail

}  // namespace topsum

#endif
