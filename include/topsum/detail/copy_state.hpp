// SPDX-License-Identifier: BSL-1.0
/// \file
/// What a state shows, copied into another of the same stage: allocates nothing.
#ifndef TOPSUM_DETAIL_COPY_STATE_HPP
#define TOPSUM_DETAIL_COPY_STATE_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <topsum/core/state.hpp>

namespace topsum::detail {

/// Calls `f(field)` for field number `wanted`, states inside states being taken apart.
template <class B, class F>
class nth_field {
 public:
  nth_field(std::size_t wanted, F& f) : wanted_{wanted}, f_{f} {}
  template <class Field>
  void operator()(std::string_view, Field& field) {
    if constexpr (std::is_arithmetic_v<Field> || is_number_vector<Field> ||
                  !std::is_void_v<buffer_element_t<B, Field>>) {
      if (seen_++ == wanted_) f_(field);
    } else {
      visit_state(field, *this);
    }
  }

 private:
  std::size_t wanted_;
  std::size_t seen_ = 0;
  F& f_;
};

/// One field's contents; nothing where the types differ.
template <class B, class Field, class Other>
void copy_field(B& backend, Field const& from, Other& to) {
  if constexpr (std::same_as<Field, Other>) {
    using V = buffer_element_t<B, Field>;
    if constexpr (std::is_arithmetic_v<Field>) {
      to = from;
    } else if constexpr (is_number_vector<Field>) {
      std::ranges::copy(from, to.begin());
    } else {
      backend.copy(typename B::template span<V const>{from.view()}, to.view());
    }
  }
}

/// Copies the fields that `State` shows. O(fields^2) visits: a state has a handful.
template <class B, class State>
void copy_state(B& backend, State const& from, State& to) {
  auto& shown = const_cast<State&>(from);  // `visit` gives fields to be read or written; these are read
  bool found = true;
  for (std::size_t number = 0; found; ++number) {
    found = false;
    auto write = [&](auto& target) {
      found = true;
      auto read = [&](auto const& origin) { copy_field(backend, origin, target); };
      nth_field<B, decltype(read)> same{number, read};
      visit_state(shown, same);
    };
    nth_field<B, decltype(write)> field{number, write};
    visit_state(to, field);
  }
}

}  // namespace topsum::detail

#endif
