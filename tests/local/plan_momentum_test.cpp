// SPDX-License-Identifier: BSL-1.0
// Whole plans with momentum in the residual, against a slow model of all ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using comm_t = topsum::local::communicator;
using topsum::laws::input;
using vector = std::vector<float>;

constexpr std::size_t n = 211;
constexpr std::size_t k = 20;
topsum::ok_topk const lively{.boundaries_every = 3, .threshold_every = 4, .balance_above = 1.2};

vector gradient_of(input kind, int rank, int ranks, std::uint64_t step) {
  return topsum::laws::make_gradient<float>(kind, topsum::laws::spread::alike, n, rank, ranks, step);
}

// What every rank saw of one step.
struct seen {
  std::vector<vector> results, residuals;
};

template <class... S>
std::vector<seen> run(int ranks, int steps, input kind, bool poisoned, S const&... stages) {
  auto const P = static_cast<std::size_t>(ranks);
  std::vector<seen> all(static_cast<std::size_t>(steps), seen{std::vector<vector>(P), std::vector<vector>(P)});
  topsum::local::run(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, topsum::sum{}, topsum::on_nonfinite::drop,
                                      stages...);
    auto const r = static_cast<std::size_t>(comm.rank());
    for (std::size_t s = 0; s < all.size(); ++s) {
      auto x = gradient_of(kind, comm.rank(), ranks, s);
      if (poisoned) x[(s * 31 + r) % n] = std::numeric_limits<float>::quiet_NaN();
      plan(std::span<float>{x});
      all[s].results[r] = x;
      all[s].residuals[r].assign(plan.residual().begin(), plan.residual().end());
    }
  });
  return all;
}

// Indices of the k largest magnitudes, ties to the smaller index.
std::vector<bool> largest(vector const& x) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
  std::vector<bool> chosen(n);
  for (std::size_t j = 0; j < k; ++j) chosen[order[j]] = true;
  return chosen;
}

// One rank's v and m, and what it selects.
struct rank_model {
  vector v = vector(n), m = vector(n);
  vector acc = vector(n);
  std::vector<bool> selected;

  void accumulate(vector const& gradient, float mu) {
    for (std::size_t i = 0; i < n; ++i) {
      acc[i] = 0;
      float const next = mu * m[i] + gradient[i];
      if (!std::isfinite(v[i] + next)) continue;
      m[i] = next;
      acc[i] = v[i] += next;
    }
    selected = largest(acc);
  }
  void clear(std::size_t i) {
    v[i] -= acc[i];
    m[i] = 0;
  }
};

template <class Exchange>
void check_model(int ranks, Exchange const& exchange, input kind, bool poisoned, double mu) {
  CAPTURE(ranks);
  constexpr int steps = 9;
  auto const saw = run(ranks, steps, kind, poisoned, exchange, topsum::momentum_correction{.momentum = mu});
  std::vector<rank_model> model(static_cast<std::size_t>(ranks));
  for (std::size_t s = 0; s < steps; ++s) {
    CAPTURE(s);
    for (std::size_t r = 0; r < model.size(); ++r) {
      auto x = gradient_of(kind, static_cast<int>(r), ranks, s);
      if (poisoned) x[(s * 31 + r) % n] = std::numeric_limits<float>::quiet_NaN();
      model[r].accumulate(x, static_cast<float>(mu));
    }
    vector const& result = saw[s].results[0];
    vector sum(n);
    for (auto& rank : model) {
      for (std::size_t i = 0; i < n; ++i) {
        if (rank.selected[i]) sum[i] += rank.acc[i];
      }
    }
    // All that was selected is applied, or what of it is in the result (a sum of zero may be in it or not).
    bool const whole = Exchange::kind == topsum::exchange_kind::union_of;
    for (auto& rank : model) {
      for (std::size_t i = 0; i < n; ++i) {
        if (rank.selected[i] && (whole || result[i] != 0)) rank.clear(i);
      }
    }
    for (std::size_t r = 0; r < model.size(); ++r) {
      CHECK(test::same_bits(saw[s].results[r], result));
      CHECK(saw[s].residuals[r] == model[r].v);
      if (whole) CHECK(saw[s].results[r] == sum);
    }
  }
}

}  // namespace

TEST_CASE("momentum_correction under gather_all is the slow model, on 1 to 4 ranks") {
  for (int const ranks : {1, 2, 3, 4}) {
    check_model(ranks, topsum::gather_all{}, input::laplace, false, 0.9);
    check_model(ranks, topsum::gather_all{}, input::small_integers, false, 0.5);
    check_model(ranks, topsum::gather_all{}, input::laplace, true, 0.9);
  }
}

TEST_CASE("momentum_correction under ok_topk clears what was applied and nothing else, on 1 to 4 ranks") {
  for (int const ranks : {1, 2, 3, 4}) {
    check_model(ranks, lively, input::laplace, false, 0.9);
    check_model(ranks, lively, input::laplace, true, 0.9);
  }
}

TEST_CASE("with momentum nothing is lost: v and the results add up to all momenta, exactly on small integers") {
  // Without masking the momenta do not depend on what was applied.
  topsum::momentum_correction const store{.momentum = 0.5, .masking = false};
  for (int const ranks : {1, 2, 3, 4}) {
    auto const check = [&](auto const& exchange) {
      auto const saw = run(ranks, 8, input::small_integers, false, exchange, store);
      vector applied(n), momenta(n), now(n);
      for (std::size_t s = 0; s < saw.size(); ++s) {
        vector owed(n);
        for (std::size_t i = 0; i < n; ++i) applied[i] += saw[s].results[0][i];
        for (int r = 0; r < ranks; ++r) {
          auto const x = gradient_of(input::small_integers, r, ranks, s);
          for (std::size_t i = 0; i < n; ++i) owed[i] += x[i];
        }
        for (std::size_t i = 0; i < n; ++i) {
          now[i] = 0.5F * now[i] + owed[i];
          momenta[i] += now[i];
        }
        vector left = applied;
        for (auto const& v : saw[s].residuals) {
          for (std::size_t i = 0; i < n; ++i) left[i] += v[i];
        }
        CHECK(left == momenta);
      }
    };
    check(topsum::gather_all{});
    check(lively);
    check(topsum::dense{});
  }
}

TEST_CASE("a dense warm-up hands its momentum over to a sparse plan, which goes on as the slow model does") {
  constexpr double mu = 0.9;
  constexpr std::size_t warm_steps = 4;
  topsum::momentum_correction const store{.momentum = mu};
  for (int const ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    auto const P = static_cast<std::size_t>(ranks);
    std::vector<seen> saw(10, seen{std::vector<vector>(P), std::vector<vector>(P)});
    topsum::local::run(ranks, [&](comm_t& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const step = [&](auto& plan, std::size_t s) {
        auto x = gradient_of(input::laplace, comm.rank(), ranks, s);
        plan(std::span<float>{x});
        saw[s].results[r] = x;
        saw[s].residuals[r].assign(plan.residual().begin(), plan.residual().end());
      };
      auto sparse = plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, topsum::gather_all{}, topsum::sum{}, store);
      auto warm = plan_allreduce<float>(comm, n, topsum::dense{}, topsum::sum{}, store);
      for (std::size_t s = 0; s < warm_steps; ++s) step(warm, s);
      sparse.load(warm.save(), topsum::restore::residual);
      if (sparse.step() != warm_steps) throw topsum::error{errc::mismatch, "the step goes on"};
      for (std::size_t s = warm_steps; s < saw.size(); ++s) step(sparse, s);
    });
    std::vector<rank_model> model(P);
    for (std::size_t s = 0; s < saw.size(); ++s) {
      vector sum(n);
      for (std::size_t r = 0; r < P; ++r) {
        rank_model& rank = model[r];
        rank.accumulate(gradient_of(input::laplace, static_cast<int>(r), ranks, s), static_cast<float>(mu));
        for (std::size_t i = 0; i < n; ++i) {
          if (s < warm_steps) {
            sum[i] += rank.acc[i];
            rank.v[i] = 0;  // the momentum goes on
          } else if (rank.selected[i]) {
            sum[i] += rank.acc[i];
            rank.clear(i);
          }
        }
        CHECK(saw[s].residuals[r] == rank.v);
        CHECK(test::same_bits(saw[s].results[r], saw[s].results[0]));
      }
      // Under dense each block is summed from another rank on: from three ranks on the last bits differ.
      bool const rounds = s < warm_steps && ranks > 2;
      if (!rounds) CHECK(saw[s].results[0] == sum);
      for (std::size_t i = 0; rounds && i < n; ++i)
        CHECK(saw[s].results[0][i] == doctest::Approx(sum[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("a plan with momentum is saved and loaded whole, and re-sharding sums both vectors") {
  topsum::momentum_correction const store{.momentum = 0.5};
  std::vector<std::vector<std::byte>> saved(3);
  std::vector<vector> straight(3), resumed(3), fewer(2), m(2);
  topsum::local::run(3, [&](comm_t& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, lively, store);
    for (std::uint64_t s = 0; s < 5; ++s) {
      auto x = gradient_of(input::small_integers, comm.rank(), 3, s);
      plan(std::span<float>{x});
    }
    saved[r] = plan.save();
    for (std::uint64_t s = 5; s < 10; ++s) {
      straight[r] = gradient_of(input::small_integers, comm.rank(), 3, s);
      plan(std::span<float>{straight[r]});
    }
  });
  topsum::local::run(3, [&](comm_t& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, lively, store);
    plan.load(saved[r]);
    for (std::uint64_t s = 5; s < 10; ++s) {
      resumed[r] = gradient_of(input::small_integers, comm.rank(), 3, s);
      plan(std::span<float>{resumed[r]});
    }
  });
  for (std::size_t r = 0; r < 3; ++r) CHECK(test::same_bits(straight[r], resumed[r]));

  // Gradients of zero show the momentum: after a step v has grown by m / 2.
  std::vector<vector> before(3), grown(3);
  auto const sum_of = [](std::vector<vector> const& all) {
    vector sum(n);
    for (auto const& one : all) {
      for (std::size_t i = 0; i < n; ++i) sum[i] += one[i];
    }
    return sum;
  };
  auto const push = [&](int ranks, std::vector<vector>& v, std::vector<vector>& pushed) {
    topsum::local::run(ranks, [&](comm_t& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto plan = plan_allreduce<float>(comm, n, topsum::dense{}, store, topsum::sum{});
      plan.load(saved, topsum::restore::residual);
      v[r].assign(plan.residual().begin(), plan.residual().end());
      pushed[r] = vector(n);
      plan(std::span<float>{pushed[r]});
    });
  };
  push(3, before, grown);
  push(2, fewer, m);
  CHECK(sum_of(before) == sum_of(fewer));
  CHECK(grown[0] == m[0]);
  CHECK(grown[0] != sum_of(before));
}
