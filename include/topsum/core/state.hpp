// SPDX-License-Identifier: BSL-1.0
/// \file
/// How a stage shows what it keeps between steps, so that a plan can save it, load it, and compare it.
#ifndef TOPSUM_CORE_STATE_HPP
#define TOPSUM_CORE_STATE_HPP

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

namespace topsum {

/// Stands for any visitor of a state where a concept needs one. A visitor takes `(name, field)`, where a field is
/// a number, a `std::vector` of numbers, a backend's `buffer` of numbers, or another state.
struct state_visitor {
  template <class Field>
  void operator()(std::string_view, Field&) {}
};

/// What a stage keeps between steps: nothing (an empty class), or fields that it shows to a visitor.
///
///     template <class V> void visit(V& visitor) { visitor("thresholds", thresholds); }
///
/// 1. Fields shown hold all that a later step reads and the constructor does not restore.  2. Always the same fields of
/// the same sizes, in the same order.
template <class S>
concept visitable_state = std::is_empty_v<S> || requires(S& state, state_visitor& visitor) { state.visit(visitor); };

/// Shows the fields of `state`, none for an empty class.
template <visitable_state S, class V>
void visit_state(S& state, V& visitor) {
  if constexpr (!std::is_empty_v<S>) state.visit(visitor);
}

namespace detail {

template <class B, class F, class V, class... Rest>
consteval auto find_element() {
  if constexpr (std::same_as<F, typename B::template buffer<V>>) {
    return std::type_identity<V>{};
  } else if constexpr (sizeof...(Rest) != 0) {
    return find_element<B, F, Rest...>();
  } else {
    return std::type_identity<void>{};
  }
}

/// The number type V of a field that is a `B::buffer<V>`, else void.
template <class B, class F>
using buffer_element_t = typename decltype(find_element<B, F, float, double, std::uint8_t, std::uint16_t, std::uint32_t,
                                                        unsigned long, unsigned long long, std::int8_t, std::int16_t,
                                                        std::int32_t, long, long long>())::type;

template <class F>
inline constexpr bool is_number_vector = false;
template <class V>
  requires(std::is_arithmetic_v<V> && !std::same_as<V, bool>)
inline constexpr bool is_number_vector<std::vector<V>> = true;

}  // namespace detail

}  // namespace topsum

#endif
