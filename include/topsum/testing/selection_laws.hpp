// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of selection policies and, through `global`, of rules.
#ifndef TOPSUM_TESTING_SELECTION_LAWS_HPP
#define TOPSUM_TESTING_SELECTION_LAWS_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/source.hpp>
#include <topsum/detail/state_fields.hpp>
#include <topsum/residual/error_feedback.hpp>
#include <topsum/testing/inputs.hpp>

namespace topsum::laws {

/// A selection as numbers on the host.
template <class R, class I>
struct host_entries {
  std::vector<I> indices;
  std::vector<R> values;
  friend bool operator==(host_entries const& a, host_entries const& b) {
    return a.indices == b.indices && a.values.size() == b.values.size() &&
           std::equal(a.values.begin(), a.values.end(), b.values.begin(),
                      [](R x, R y) { return std::bit_cast<bits_t<R>>(x) == std::bit_cast<bits_t<R>>(y); });
  }
};

/// Runs a policy over one gradient a step with error feedback and nothing ever applied; `after(step, selection, accumulators)`.
/// With `through_bytes` each step's state is saved and loaded into a new one.
template <class T, class I, class P, class B, class After>
void select_steps(P const& policy, layout const& shapes, B& backend, input kind, std::uint64_t steps, After after,
                  bool through_bytes = false) {
  using R = wide_t<T>;
  partition const pieces = policy.pieces(shapes);
  pieces.for_each_list([&](std::span<piece const> list) { backend.template reserve_selection<R, I>(list); });
  backend.template reserve_lists<R, I>(2, pieces.capacity);
  typename P::template state<B, R> state{backend, pieces};
  typename P::template state<B, R> next{backend, pieces};
  error_feedback const residual;
  error_feedback::state<B, T> kept{backend, shapes.size(), residual};
  entries<B, R, I> out{backend, pieces.room};
  auto fault = backend.template allocate<nonfinite_record>(1);
  for (std::uint64_t step = 0; step < steps; ++step) {
    auto const gradient = place(backend, make_input<T>(kind, shapes.size(), 7 + step));
    backend.fill(fault.view(), nonfinite_record{});
    auto const from = residual.template accumulate<B, T>(backend, gradient.view(), kept, fault.view());
    policy.select(backend, from, pieces, step, std::as_const(state), next, out.view());
    if constexpr (observing_policy<P, B, T, I>) policy.observe(backend, out.view(), pieces, step, next);
    std::size_t const count = backend.read(typename B::template span<std::size_t const>{out.view().count});
    bool const fits = count <= pieces.capacity;
    host_entries<R, I> const got = fits ? host_entries<R, I>{fetch<I>(backend, out.view().indices, count),
                                                             fetch<R>(backend, out.view().values, count)}
                                        : host_entries<R, I>{};
    after(step, fits, got, fetch<R>(backend, kept.current(), shapes.size()));
    std::swap(state, next);
    if (!through_bytes) continue;
    auto const bytes = detail::save_fields(backend, state);
    detail::saved_bytes const saved{bytes};
    state = typename P::template state<B, R>{backend, pieces};
    detail::load_fields(backend, state, std::span{&saved, 1}, detail::loading::apply, false);
  }
}

/// Entries lie in pieces, at most `capacity` of them in a group.
template <class I>
void expect_room(verdict& v, std::span<piece const> pieces, std::vector<I> const& indices) {
  std::size_t at = 0;
  for (piece const& p : pieces) {
    std::vector<std::size_t> travel(group_count(p));
    while (at < indices.size() && indices[at] < p.begin + p.size) {
      if (!v.expect(indices[at] >= p.begin, "entries lie in pieces")) return;
      ++travel[group_of(p, indices[at++])];
    }
    for (std::size_t const sent : travel) v.expect(sent <= p.capacity, "at most `capacity` entries a group");
  }
  v.expect(at == indices.size(), "entries lie in pieces, in order");
}

/// Laws of `selection_policy` on `shapes`, over every input and a few steps: pieces lie in the layout in order; at most
/// `capacity` entries a piece; indices increase; values are the accumulators, bit for bit; `fixed_count` tells the truth; the
/// accumulators come into being exactly once; the same input, step and state give the same entries.
template <value_type T, index_type I = std::uint32_t, class P, class B = host>
  requires selection_policy<P, B, T, I>
[[nodiscard]] failures selection_policy(P const& policy, layout const& shapes, B backend = {},
                                        std::uint64_t steps = 3) {
  using R = wide_t<T>;
  verdict v;
  v.about(to_text(policy));
  policy.validate();
  partition const pieces = policy.pieces(shapes);
  pieces.for_each_list([&](std::span<piece const> list) {
    std::size_t end = 0;
    for (piece const& p : list) {
      v.expect(p.begin >= end && p.begin + p.size <= shapes.size(),
               "pieces lie in the layout, in order, without overlap");
      v.expect(is_well_formed(p), "a piece is whole blocks, and a group sends no more entries than it has values");
      end = p.begin + p.size;
    }
  });
  v.expect(pieces.capacity <= shapes.size(), "no more entries may travel than there are values");
  for (input const kind : every_input) {
    std::vector<host_entries<R, I>> first_run;
    std::vector<R> sum(shapes.size());
    select_steps<T, I>(
        policy, shapes, backend, kind, steps,
        [&](std::uint64_t step, bool fits, auto const& got, std::vector<R> const& accumulators) {
          v.about(to_text(policy) + " on " + std::string{to_string(kind)} + ", step " + std::to_string(step));
          auto const gradient = make_input<T>(kind, shapes.size(), 7 + step);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += to_wide(gradient[i]);
          v.expect(sum == accumulators, "each element is accumulated exactly once");
          if (!v.expect(fits, "no more entries than the pieces' capacities")) return;
          if (P::fixed_count)
            v.expect(got.indices.size() == pieces.capacity, "fixed_count policies fill every capacity");
          for (std::size_t at = 0; at < got.indices.size(); ++at) {
            std::size_t const i = got.indices[at];
            if (!v.expect(i < sum.size() && (at == 0 || got.indices[at - 1] < i), "indices increase strictly")) return;
            v.expect(std::bit_cast<bits_t<R>>(got.values[at]) == std::bit_cast<bits_t<R>>(accumulators[i]),
                     "values are the accumulators, bit for bit");
          }
          if (pieces.parts.empty()) expect_room(v, pieces, got.indices);
          first_run.push_back(got);
        });
    for (bool const through_bytes : {false, true}) {
      if (through_bytes && kind != input::laplace && kind != input::small_integers) continue;
      std::size_t run = 0;
      select_steps<T, I>(
          policy, shapes, backend, kind, steps,
          [&](std::uint64_t, bool, auto const& got, auto const&) {
            v.expect(run < first_run.size() && got == first_run[run],
                     through_bytes ? "a state that was saved and loaded is as good as the old one"
                                   : "the same input, step and state give the same entries");
            ++run;
          },
          through_bytes);
    }
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
