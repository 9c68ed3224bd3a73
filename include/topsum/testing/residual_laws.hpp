// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of residual stores.
#ifndef TOPSUM_TESTING_RESIDUAL_LAWS_HPP
#define TOPSUM_TESTING_RESIDUAL_LAWS_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/testing/inputs.hpp>

namespace topsum::laws {

/// Laws of `residual_store`, for stores whose states have `current()`: residual + applied = accumulators, exactly; nothing
/// non-finite is stored; a failed step keeps the finite gradients (`rolls_back` false) or leaves no trace (true). `n` is at least 2.
template <value_type T, class S, class B = host>
  requires residual_store<S, B, T>
[[nodiscard]] failures residual_store(S const& store, bool rolls_back = false, std::size_t n = 1009, B backend = {}) {
  using R = wide_t<T>;
  using I = std::uint32_t;
  verdict v;
  v.about(to_text(store));
  store.validate();
  if constexpr (S::keeps) {
    typename S::template state<B, T> state{backend, n, store};
    auto fault = backend.template allocate<nonfinite_record>(1);
    auto accumulators = backend.template allocate<R>(n);
    entries<B, R, I> applied{backend, n};
    backend.template reserve_lists<R, I>(2, n);
    auto const step = [&](std::vector<T> const& gradient) {
      auto const there = place(backend, gradient);
      backend.fill(fault.view(), nonfinite_record{});
      backend.accumulate(store.template accumulate<B, T>(backend, there.view(), state, fault.view()),
                         accumulators.view());
      backend.wait();
    };
    auto const residual = [&] { return fetch<R>(backend, state.current(), n); };

    for (std::uint64_t round = 0; round < 3; ++round) {
      auto const before = residual();
      step(make_input<T>(input::small_integers, n, round));
      auto const acc = fetch<R>(backend, accumulators.view(), n);
      std::vector<I> indices;
      std::vector<R> values;
      for (std::size_t i = static_cast<std::size_t>(round); i < n; i += 3) {
        indices.push_back(static_cast<I>(i));
        values.push_back(acc[i]);
      }
      backend.write(std::span<I const>{indices}, applied.view().indices.subspan(0, indices.size()));
      backend.write(std::span<R const>{values}, applied.view().values.subspan(0, values.size()));
      backend.fill(applied.view().count, indices.size());
      store.keep(backend, state, applied.view());
      store.commit(state);
      auto after = residual();
      for (std::size_t e = 0; e < indices.size(); ++e) after[indices[e]] += values[e];
      v.expect(after == acc, "residual + applied entries = accumulators");
    }
    auto const before = residual();
    auto gradient = make_input<T>(input::small_integers, n, 99);
    gradient[n / 2] = from_wide<T>(std::numeric_limits<R>::quiet_NaN());
    gradient[0] = from_wide<T>(std::numeric_limits<R>::infinity());
    step(gradient);
    auto const failed = residual();
    for (R x : failed) v.expect(is_finite(x), "nothing non-finite is ever stored");
    auto const record = backend.read(typename B::template span<nonfinite_record const>{fault.view()});
    v.expect(record.count == 2 && record.first == 0, "non-finite elements are recorded");
    if (rolls_back) {
      v.expect(failed == before, "a step without commit leaves no trace");
    } else {
      v.expect(failed[0] == before[0] && failed[n / 2] == before[n / 2],
               "where the gradient is not finite the residual keeps its value");
      auto const acc = fetch<R>(backend, accumulators.view(), n);
      for (std::size_t i = 1; i < n; ++i)
        v.expect(i == n / 2 || failed[i] == acc[i], "a step without commit keeps the finite gradients");
    }
    step(make_input<T>(input::small_integers, n, 5));
    store.template keep_dense<B, T>(backend, state, accumulators.view());
    store.commit(state);
    for (R x : residual()) v.expect(x == R{0}, "what is applied whole leaves no residual");
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
