// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of residual stores.
#ifndef TOPSUM_TESTING_RESIDUAL_LAWS_HPP
#define TOPSUM_TESTING_RESIDUAL_LAWS_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/detail/state_fields.hpp>
#include <topsum/testing/inputs.hpp>

namespace topsum::laws {

/// The vectors of n values that a state shows.
template <class R, class B, class State>
[[nodiscard]] std::vector<std::vector<R>> kept_vectors(B& backend, State& state, std::size_t n) {
  std::vector<std::vector<R>> found;
  auto visitor = [&](std::string_view, auto& field) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, typename B::template buffer<R>>) {
      if (field.size() == n) found.push_back(fetch<R>(backend, field.view(), n));
    }
  };
  visit_state(state, visitor);
  return found;
}

/// Laws of `residual_store`, for stores whose states have `current()`: residual + applied = accumulators, exactly; nothing
/// non-finite is stored; a failed step keeps the finite gradients (`rolls_back` false) or leaves no trace (true); a state is saved
/// and loaded whole; where the store can discard a step, nothing of it is left. For a store that corrects momentum the accumulator
/// is its v, with this step's momentum in it. `n` is at least 2.
template <value_type T, class S, class B = host>
  requires residual_store<S, B, T>
[[nodiscard]] failures residual_store(S const& store, bool rolls_back = false, std::size_t n = 1009, B backend = {}) {
  using R = wide_t<T>;
  using I = std::uint32_t;
  using state_type = typename S::template state<B, T>;
  verdict v;
  v.about(to_text(store));
  store.validate();
  if constexpr (S::keeps) {
    state_type state{backend, n, store};
    auto fault = backend.template allocate<nonfinite_record>(1);
    auto accumulators = backend.template allocate<R>(n);
    entries<B, R, I> applied{backend, n};
    backend.template reserve_lists<R, I>(2, n);
    auto const step = [&](state_type& on, std::vector<T> const& gradient) {
      auto const there = place(backend, gradient);
      backend.fill(fault.view(), nonfinite_record{});
      backend.accumulate(store.template accumulate<B, T>(backend, there.view(), on, fault.view()), accumulators.view());
      backend.wait();
      return fetch<R>(backend, accumulators.view(), n);
    };
    // Every third entry of the accumulators was applied.
    auto const apply = [&](state_type& on, std::vector<R> const& acc, std::size_t first, bool comes_back = false) {
      std::vector<I> indices;
      std::vector<R> values;
      for (std::size_t i = first; i < n; i += 3) {
        indices.push_back(static_cast<I>(i));
        values.push_back(acc[i]);
      }
      backend.write(std::span<I const>{indices}, applied.view().indices.subspan(0, indices.size()));
      backend.write(std::span<R const>{values}, applied.view().values.subspan(0, values.size()));
      backend.fill(applied.view().count, indices.size());
      store.keep(backend, on, applied.view());
      if (comes_back) store.take_back(backend, on, applied.view());
      store.commit(on);
    };
    auto const residual = [&] { return fetch<R>(backend, state.current(), n); };
    auto const saved = [&] { return detail::save_fields(backend, state); };

    for (std::size_t round = 0; round < 3; ++round) {
      state_type copy{backend, n, store};
      auto const bytes = saved();
      detail::saved_bytes const from{bytes};
      detail::load_fields(backend, copy, std::span{&from, 1}, detail::loading::apply, true);
      auto const gradient = make_input<T>(input::small_integers, n, round);
      auto const acc = step(state, gradient);
      apply(state, acc, round);
      auto after = residual();
      for (std::size_t i = round; i < n; i += 3) after[i] += acc[i];
      v.expect(after == acc, "residual + applied entries = accumulators");
      auto const copied = step(copy, gradient);
      apply(copy, copied, round);
      v.expect(copied == acc && detail::save_fields(backend, copy) == saved(),
               "a state that was saved and loaded is as good as the old one");
    }
    auto const before = kept_vectors<R>(backend, state, n);
    auto gradient = make_input<T>(input::small_integers, n, 99);
    gradient[n / 2] = from_wide<T>(std::numeric_limits<R>::quiet_NaN());
    gradient[0] = from_wide<T>(std::numeric_limits<R>::infinity());
    auto const acc = step(state, gradient);
    auto const failed = kept_vectors<R>(backend, state, n);
    v.expect(!failed.empty(), "a store that keeps something shows it");
    for (auto const& vector : failed) {
      for (R x : vector) v.expect(is_finite(x), "nothing non-finite is ever stored");
    }
    auto const record = backend.read(typename B::template span<nonfinite_record const>{fault.view()});
    v.expect(record.count == 2 && record.first == 0, "non-finite elements are recorded");
    if (rolls_back) {
      v.expect(failed == before, "a step without commit leaves no trace");
    } else {
      for (std::size_t j = 0; j < failed.size(); ++j)
        v.expect(failed[j][0] == before[j][0] && failed[j][n / 2] == before[j][n / 2],
                 "where the gradient is not finite everything keeps its value");
      auto const kept = residual();
      for (std::size_t i = 1; i < n; ++i)
        v.expect(i == n / 2 || kept[i] == acc[i], "a step without commit keeps the finite gradients");
    }
    if constexpr (discarding_store<S, B, T>) {
      v.expect(store.rolls_back() == rolls_back, "a store that rolls back can discard a step");
      if (store.rolls_back()) {
        auto const as_it_was = saved();
        auto const once = step(state, make_input<T>(input::laplace, n, 6));
        apply(state, once, 1);
        store.discard(state);
        v.expect(saved() == as_it_was, "nothing is left of a step that was discarded");
        v.expect(step(state, make_input<T>(input::laplace, n, 6)) == once, "a step can be made again");
        apply(state, once, 1);
      }
    }
    auto const returned = step(state, make_input<T>(input::small_integers, n, 4));
    apply(state, returned, 0, true);
    v.expect(residual() == returned, "entries that were applied and came back are in the residual");
    static_cast<void>(step(state, make_input<T>(input::small_integers, n, 5)));
    store.template keep_dense<B, T>(backend, state, accumulators.view());
    store.commit(state);
    for (R x : residual()) v.expect(x == R{0}, "what is applied whole leaves no residual");
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
