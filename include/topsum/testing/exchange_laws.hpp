// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of exchanges, over ranks as threads.
#ifndef TOPSUM_TESTING_EXCHANGE_LAWS_HPP
#define TOPSUM_TESTING_EXCHANGE_LAWS_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <topsum/allreduce.hpp>
#include <topsum/reduction/sum.hpp>
#include <topsum/testing/inputs.hpp>
#include <topsum/transport/local.hpp>

namespace topsum::laws {

/// What the ranks' gradients look like side by side.
enum class spread {
  alike,      ///< every rank its own values of one shape
  one_empty,  ///< the last rank has zeros only
  equal,      ///< every rank the same values
  disjoint    ///< rank r has values only in the r-th part of the positions
};
/// All of them, to loop over.
inline constexpr spread every_spread[] = {spread::alike, spread::one_empty, spread::equal, spread::disjoint};

/// Rank r's gradient in step `step`.
template <class T>
[[nodiscard]] std::vector<T> make_gradient(input kind, spread how, std::size_t n, int rank, int ranks,
                                           std::uint64_t step) {
  auto const r = static_cast<std::size_t>(rank);
  auto const P = static_cast<std::size_t>(ranks);
  auto x = make_input<T>(kind, n, 1000 * step + (how == spread::equal ? 0 : r));
  for (std::size_t i = 0; i < n; ++i) {
    bool const keep = how == spread::one_empty ? (P == 1 || r + 1 != P)
                                               : how != spread::disjoint || i * P / std::max<std::size_t>(n, 1) == r;
    if (!keep) x[i] = T{};
  }
  return x;
}

/// Where a law of exchanges runs on a rank: over ranks as threads, with a backend.
template <class B>
struct seat {
  local::communicator& comm;
  B const& on;
  [[nodiscard]] local::communicator transport() const { return comm; }
  [[nodiscard]] B const& backend() const { return on; }
};
/// What gives a rank its transport and its backend: a `seat`, or for a device with a transport of its own what `on.sit(comm)` returns,
/// with `transport()` and `backend()`.
template <class B>
[[nodiscard]] auto sit(B const& on, local::communicator& comm) {
  if constexpr (requires { on.sit(comm); }) {
    return on.sit(comm);
  } else {
    return seat<B>{comm, on};
  }
}

/// What every rank saw over some steps.
template <class T>
struct history {
  std::vector<std::vector<std::vector<T>>> results;            ///< [step][rank][i]
  std::vector<std::vector<std::vector<wide_t<T>>>> residuals;  ///< [step][rank][i]; empty without a residual
};

/// Runs a plan of these stages on `ranks` threads for some steps and keeps everything. Before step `restart` a new plan takes over
/// what the old one saved.
template <class T, class I, class B, class... S>
[[nodiscard]] history<T> run_steps(int ranks, std::size_t n, input kind, spread how, std::uint64_t steps,
                                   std::uint64_t shuffle, std::uint64_t restart, B const& on, S const&... stages) {
  history<T> h;
  auto const P = static_cast<std::size_t>(ranks);
  h.results.assign(steps, std::vector<std::vector<T>>(P));
  h.residuals.assign(steps, std::vector<std::vector<wide_t<T>>>(P));
  local::options options;
  options.shuffle_seed = shuffle;
  local::run(
      ranks,
      [&](local::communicator comm) {
        auto const here = sit(on, comm);
        auto const make_plan = [&] {
          return plan_allreduce<T>(here.transport(), n, here.backend(), topsum::index<I>{}, stages...);
        };
        auto plan = make_plan();
        auto const r = static_cast<std::size_t>(comm.rank());
        for (std::uint64_t step = 0; step < steps; ++step) {
          if (step == restart) {
            auto const saved = plan.save();
            plan = make_plan();
            plan.load(saved);
          }
          auto& b = plan.backend();
          auto gradient = place(b, make_gradient<T>(kind, how, n, comm.rank(), ranks, step));
          static_cast<void>(plan(gradient.view()));
          h.results[step][r] = fetch<T>(b, gradient.view(), n);
          if constexpr (requires { plan.residual(); }) h.residuals[step][r] = fetch<wide_t<T>>(b, plan.residual(), n);
        }
      },
      options);
  return h;
}

/// Laws of `exchange`, for the plan of `stages` (an exchange and what else the plan needs, `sum` and `error_feedback` included
/// by this function), over ranks as threads: the same result on every rank, bit for bit, and from run to run whatever the order
/// of arrival, even when a plan is saved and loaded in between; conservation, exactly, on small integers: what left the residuals is the result, rounded to `T` once.
template <value_type T, index_type I = std::uint32_t, class X, class... S>
[[nodiscard]] failures exchange(X const& stage, int ranks, std::size_t n, std::uint64_t steps, S const&... others) {
  using R = wide_t<T>;
  verdict v;
  auto const same_bits = [](std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](T x, T y) {
             return std::bit_cast<bits_t<T>>(x) == std::bit_cast<bits_t<T>>(y);
           });
  };
  auto const P = static_cast<std::size_t>(ranks);
  auto const on = detail::pick<backend_tag, host>(others...);
  std::uint64_t const never = steps;
  auto const run = [&](input kind, spread how, std::uint64_t shuffle, std::uint64_t restart) {
    if constexpr (detail::filled<backend_tag, S...> == 0) {
      return run_steps<T, I>(ranks, n, kind, how, steps, shuffle, restart, on, stage, error_feedback{}, sum{},
                             others...);
    } else {
      return [&]<class... Rest>(auto const&, Rest const&... rest) {  // the backend comes first among the others
        return run_steps<T, I>(ranks, n, kind, how, steps, shuffle, restart, on, stage, error_feedback{}, sum{},
                               rest...);
      }(others...);
    }
  };
  for (spread const how : every_spread) {
    for (input const kind : every_input) {
      // All inputs where ranks are alike; elsewhere reals, exact sums and nothing at all. Again from run to run for two of them.
      bool const telling = kind == input::laplace || kind == input::small_integers;
      if (how != spread::alike && !telling && kind != input::all_zero) continue;
      v.about(to_text(stage) + ", P = " + std::to_string(ranks) + ", n = " + std::to_string(n) + ", " +
              std::string{to_string(kind)} + ", spread " + std::to_string(static_cast<int>(how)));
      history<T> const first = run(kind, how, 0, never);
      history<T> const again = telling ? run(kind, how, 17, steps / 2) : first;
      std::vector<R> owed(n);  // sum over ranks of residuals before the step
      for (std::uint64_t step = 0; step < steps; ++step) {
        for (std::size_t r = 0; r < P; ++r) {
          v.expect(same_bits(first.results[step][0], first.results[step][r]),
                   "the same result on every rank, bit for bit");
          v.expect(same_bits(first.results[step][r], again.results[step][r]),
                   "the same result from run to run, through a save and a load in the middle");
        }
        if (kind == input::laplace || kind == input::negative_only) continue;
        std::vector<R> left(n);
        for (std::size_t r = 0; r < P; ++r) {
          auto const gradient = make_gradient<T>(kind, how, n, static_cast<int>(r), ranks, step);
          for (std::size_t i = 0; i < n; ++i) {
            owed[i] += to_wide(gradient[i]);
            left[i] += first.residuals[step][r][i];
          }
        }
        bool whole = true;
        for (std::size_t i = 0; i < n; ++i)
          whole = whole && to_wide(first.results[step][0][i]) == to_wide(from_wide<T>(owed[i] - left[i]));
        v.expect(whole, "residuals + result = accumulators, exactly, in step " + std::to_string(step));
        owed = left;
      }
    }
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
