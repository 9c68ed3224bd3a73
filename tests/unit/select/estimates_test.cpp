// SPDX-License-Identifier: BSL-1.0
// Rules that estimate a threshold: against sorting and plain sums, on inputs that break others, and how near they come.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <topsum/detail/normal_quantile.hpp>
#include <topsum/detail/tail_fits.hpp>
#include <topsum/testing/selection_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/archetype_backend.hpp"
#include "support/rule_oracle.hpp"

namespace {

using topsum::tail_fit;
using topsum::laws::every_input;
using topsum::laws::input;
using topsum::laws::make_input;

// Steps of a policy against the oracle's, with error feedback and nothing ever applied.
template <class T, class Policy>
void check(Policy const& policy, topsum::layout const& shapes, input kind, std::uint64_t steps) {
  topsum::host backend;
  auto const targets = test::oracle::targets_of(policy.pieces(shapes));
  std::vector<test::oracle::kept> memory(targets.size());
  topsum::laws::select_steps<T, std::uint32_t>(
      policy, shapes, backend, kind, steps,
      [&](std::uint64_t step, bool fits, auto const& got, std::vector<T> const& acc) {
        CHECK(fits);
        auto const want = test::oracle::select_groups(policy.rule, acc, targets, step, memory);
        bool same = got.indices.size() == want.size();
        for (std::size_t e = 0; same && e < want.size(); ++e)
          same = got.indices[e] == want[e].index && got.values[e] == want[e].value;
        CHECK_MESSAGE(same, topsum::to_text(policy) << " on " << std::string{to_string(kind)} << ", step " << step
                                                    << ": " << got.indices.size() << " not " << want.size());
      });
}

topsum::layout const layers{{"a", {30, 50}}, {"none", {0, 3}}, {"b", {1100}}, {"scalar", {}}, {"c", {200}}};

template <class Rule>
void check_everywhere(Rule const& rule) {
  for (input const kind : every_input) {
    check<float>(topsum::global{rule}, layers, kind, 12);
    check<float>(topsum::layer_wise{rule}, layers, kind, 12);
    check<double>(topsum::layer_wise{rule}, layers, kind, 7);
  }
}

// What one rank selects from each of these gradients in turn, without a residual, and the thresholds.
struct step_outcome {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  float threshold;
};
template <class Rule>
std::vector<step_outcome> run(Rule const& rule, std::vector<std::vector<float>> const& gradients,
                              topsum::host backend = {}) {
  using B = topsum::host;
  topsum::global const policy{rule};
  policy.validate();
  std::size_t const n = gradients.at(0).size();
  auto const pieces = policy.pieces(n);
  typename Rule::template state<B, float> before{backend, pieces};
  typename Rule::template state<B, float> after{backend, pieces};
  topsum::entries<B, float, std::uint32_t> out{backend, topsum::total_capacity(pieces)};
  std::vector<step_outcome> all;
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    topsum::nonfinite_record fault;
    topsum::source<B, float, topsum::plain_gradient<float>> const from{gradients[step], {}, {}, {}, {&fault, 1}};
    policy.select(backend, from, std::span{pieces}, step, std::as_const(before), after, out.view());
    auto const count = static_cast<std::ptrdiff_t>(out.view().count[0]);
    all.push_back({{out.view().indices.begin(), out.view().indices.begin() + count},
                   {out.view().values.begin(), out.view().values.begin() + count},
                   0});
    if constexpr (requires { after.thresholds; }) all.back().threshold = after.thresholds.view()[0];
    std::swap(before, after);
  }
  return all;
}

// Every rule of this file with k = 10 of 1000, as `f(rule)`.
template <class F>
void for_every_rule(F f) {
  f(topsum::sampled_threshold{});
  f(topsum::gaussian_threshold{});
  f(topsum::bisected_threshold{});
  f(topsum::bisected_threshold{.every = 1});
  f(topsum::fixed_threshold{.threshold = 2.5});
  for (auto const fit : {tail_fit::exponential, tail_fit::gamma, tail_fit::generalized_pareto}) {
    f(topsum::exponential_threshold{.fit = fit});
    f(topsum::exponential_threshold{.fit = fit, .stages = 4});
  }
}

std::vector<float> constant(float x) { return std::vector<float>(1000, x); }

}  // namespace

TEST_CASE("sampled_threshold equals sorting its sample and counting") {
  check_everywhere(topsum::sampled_threshold{});
  check_everywhere(topsum::sampled_threshold{.density = 0.1, .sample_ratio = 0.05, .at_most = 900});
  check_everywhere(topsum::sampled_threshold{.k = 30, .max_adaptations = 2, .at_most = 100});
}

TEST_CASE("gaussian_threshold equals the normal quantile of plain sums, halved and counted") {
  for (input const kind : every_input) {
    for (double const density : {0.01, 0.1, 0.5}) {
      check<float>(topsum::global{topsum::gaussian_threshold{.density = density}}, 5000, kind, 5);
      check<float>(topsum::global{topsum::gaussian_threshold{.density = density, .at_most = 4000}}, 5000, kind, 5);
      check<double>(topsum::global{topsum::gaussian_threshold{.density = density, .max_adaptations = 1}}, 5000, kind,
                    5);
    }
  }
}

TEST_CASE("exponential_threshold equals fits to plain sums, stage by stage, and adds stages when it misses") {
  for (auto const fit : {tail_fit::exponential, tail_fit::gamma, tail_fit::generalized_pareto}) {
    check_everywhere(topsum::exponential_threshold{.fit = fit, .adapt_every = 2});
    check_everywhere(topsum::exponential_threshold{.density = 0.1, .fit = fit, .stages = 3, .at_most = 1000});
    check_everywhere(topsum::exponential_threshold{.k = 20, .fit = fit, .first_ratio = 0.5, .stages = 5});
  }
}

TEST_CASE("bisected_threshold equals bisection over sorted magnitudes") {
  check_everywhere(topsum::bisected_threshold{});
  check_everywhere(topsum::bisected_threshold{.density = 0.1, .every = 3, .at_most = 1000});
  check_everywhere(topsum::bisected_threshold{.k = 20, .every = 1, .max_bisections = 3, .at_most = 40});
}

TEST_CASE("fixed_threshold equals comparing, and is lowered while nothing comes") {
  check_everywhere(topsum::fixed_threshold{.threshold = 5});
  check_everywhere(topsum::fixed_threshold{.threshold = 400, .density = 0.5});
  check_everywhere(topsum::fixed_threshold{.threshold = 1e6, .lowering = 0.25, .at_most = 50});
}

// ---------------------------------------------------------------------------------------------------------------------
// Mistakes of others

TEST_CASE("negative values travel as positive ones do: thresholds are compared with magnitudes") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto const positive = run(rule, {make_input<float>(input::laplace, 1000, 3)})[0];
    auto mirrored = make_input<float>(input::laplace, 1000, 3);
    for (float& x : mirrored) x = -x;
    CHECK(run(rule, {mirrored})[0].indices == positive.indices);
    CHECK(positive.indices.size() > 2);
  });
}

TEST_CASE("what equals the threshold travels") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto x = constant(0.0F);
    for (std::size_t i = 100; i < 110; ++i) x[i] = i % 2 == 0 ? 3.0F : -3.0F;
    auto const got = run(rule, {x})[0];
    CHECK(got.indices.size() == 10);
    CHECK(got.threshold <= 3.0F);
  });
}

TEST_CASE("constant gradients are cut to k, smaller indices first, and crash nobody") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    for (float const c : {3.0F, -7.7F, std::numeric_limits<float>::max(), 1e5F / 3}) {
      auto const got = run(rule, {constant(c), constant(c), constant(c)});
      for (auto const& step : got) {
        CHECK(step.indices == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
        CHECK(step.values == std::vector<float>(10, c));
      }
    }
  });
}

TEST_CASE("tiny constant gradients travel under every estimated threshold") {
  for_every_rule([](auto const& rule) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(rule)>, topsum::fixed_threshold>) return;
    CAPTURE(topsum::to_text(rule));
    for (float const c : {1e-30F, std::numeric_limits<float>::denorm_min()})
      CHECK(run(rule, {constant(c)})[0].indices.size() == 10);
  });
}

TEST_CASE("an all-zero gradient selects nothing, and the next one is selected from") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto x = constant(0.0F);
    x[1] = -0.0F;
    auto const got = run(rule, {x, x, constant(4.0F)});
    CHECK(got[0].indices.empty());
    CHECK(got[1].indices.empty());
    CHECK(got[2].indices.size() == 10);
  });
}

TEST_CASE("a single spike on a constant travels, and no rule selects nothing") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    for (float const spike : {10.0F, 1e6F, 1e30F, std::numeric_limits<float>::max()}) {
      auto x = constant(1.0F);
      x[700] = -spike;
      for (auto const& step : run(rule, {x, x, x})) {
        CHECK(std::count(step.indices.begin(), step.indices.end(), 700U) == 1);
        CHECK(step.indices.size() <= 10);
      }
    }
  });
}

TEST_CASE("what is not finite counts as zero: it never travels and spoils no estimate") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for_every_rule([&](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto x = make_input<float>(input::laplace, 1000, 3);
    auto y = x;
    for (std::size_t i = 0; i < 1000; i += 3) {
      x[i] = i % 2 == 0 ? inf : std::numeric_limits<float>::quiet_NaN();
      y[i] = 0;
    }
    auto const got = run(rule, {x, x});
    auto const want = run(rule, {y, y});
    for (std::size_t step = 0; step < 2; ++step) {
      CHECK(got[step].indices == want[step].indices);
      CHECK(got[step].threshold == want[step].threshold);
      CHECK(!got[step].indices.empty());
    }
    CHECK(run(rule, {constant(-inf)})[0].indices.empty());
  });
}

TEST_CASE("what is over the cap is cut by magnitude, not by index") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto const got = run(rule, {make_input<float>(input::increasing, 1000, 1)})[0];
    CHECK(!got.indices.empty());
    for (std::size_t e = 0; e < got.indices.size(); ++e) CHECK(got.indices[e] == 1000 - got.indices.size() + e);
  });
}

TEST_CASE("a fixed threshold above everything costs steps, and ranks that wait for its entries do not hang") {
  topsum::local::run(3, [](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, 100, topsum::fixed_threshold{.threshold = 1e3, .k = 20},
                                              topsum::error_feedback{}, topsum::gather_all{}, topsum::sum{});
    std::size_t first = 0;
    float total = 0;
    for (std::size_t step = 1; step <= 12; ++step) {
      std::vector<float> x(100, 1.0F);
      std::size_t const selected = plan(std::span<float>{x}).selected;
      if (selected != 0 && first == 0) first = step;
      for (float v : x) total += v;
    }
    CHECK(first == 8);  // 1000 / 2^7 <= 8, what has gathered by then
    CHECK(total > 0);
  });
}

TEST_CASE("a kept threshold that gradients shrink away from lets them through a step later") {
  auto const small = constant(0.001F);
  auto const got = run(topsum::bisected_threshold{}, {constant(5.0F), small, small, small});
  CHECK(got[1].indices.empty());
  CHECK(got[2].indices.size() == 10);
  CHECK(got[3].indices.size() == 10);
}

TEST_CASE("no rule makes ranks wait or differ, whatever few or no entries it selects") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    std::vector<std::vector<float>> results(3);
    topsum::local::run(3, [&](topsum::local::communicator& comm) {
      auto plan = topsum::plan_allreduce<float>(comm, 1000, topsum::layer_wise{rule});
      auto& mine = results[static_cast<std::size_t>(comm.rank())];
      for (input const kind : every_input) {
        // Ranks disagree in scale, and one of them has nothing at first.
        auto x = make_input<float>(kind, 1000, static_cast<std::uint64_t>(comm.rank()));
        for (float& v : x) v *= static_cast<float>(comm.rank() * comm.rank());
        plan(std::span<float>{x});
        mine.insert(mine.end(), x.begin(), x.end());
      }
    });
    CHECK(results[0] == results[1]);
    CHECK(results[0] == results[2]);
    CHECK(std::count(results[0].begin(), results[0].end(), 0.0F) < 8000);
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// How near they come

TEST_CASE("a search ends with k <= count < 2k, and lets so many travel where the cap allows") {
  for (std::size_t const k : {std::size_t{1}, std::size_t{10}, std::size_t{100}}) {
    auto const got = run(topsum::bisected_threshold{.k = k, .every = 1, .at_most = 1000},
                         {make_input<float>(input::laplace, 1000, 1), make_input<float>(input::laplace, 1000, 2)});
    for (auto const& step : got) {
      CHECK(step.indices.size() >= k);
      CHECK(step.indices.size() < 2 * k);
    }
  }
}

TEST_CASE("on exponential magnitudes, estimates come within a fifth of k") {
  std::size_t const n = 100'000;
  auto const x = make_input<float>(input::laplace, n, 11);
  auto const near = [&](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    auto const count = static_cast<double>(run(rule, {x})[0].indices.size());
    CHECK(count > 800);
    CHECK(count < 1200);
  };
  for (std::uint32_t const stages : {1U, 2U, 4U}) {
    near(topsum::exponential_threshold{.stages = stages, .at_most = n});
    near(topsum::exponential_threshold{.fit = tail_fit::generalized_pareto, .stages = stages, .at_most = n});
  }
  near(topsum::exponential_threshold{.fit = tail_fit::gamma, .stages = 3, .at_most = n});
  near(topsum::sampled_threshold{.sample_ratio = 0.1, .max_adaptations = 0, .at_most = n});
}

TEST_CASE("on normal values, the normal quantile alone comes within a tenth of k") {
  std::size_t const n = 100'000;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {  // Box and Muller
    double const u = (static_cast<double>(topsum::random_bits(1, i) >> 11) + 0.5) / 9007199254740992.0;
    double const v = static_cast<double>(topsum::random_bits(2, i) >> 11) / 9007199254740992.0;
    x[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  std::size_t const count = run(topsum::gaussian_threshold{.max_adaptations = 0, .at_most = n}, {x})[0].indices.size();
  CHECK(count > 900);
  CHECK(count < 1100);
}

TEST_CASE("adaptation leaves no estimate with fewer than its lower bound") {
  std::size_t const n = 20'000;
  for (input const kind : {input::laplace, input::negative_only, input::increasing}) {
    auto const x = make_input<float>(kind, n, 5);
    auto const sampled = run(topsum::sampled_threshold{.at_most = n}, {x, x, x});
    for (auto const& step : sampled) CHECK(step.indices.size() >= 160);
  }
  CHECK(run(topsum::gaussian_threshold{.at_most = n}, {make_input<float>(input::laplace, n, 5)})[0].indices.size() >=
        133);
}

TEST_CASE("normal_quantile and log_gamma agree with tables") {
  CHECK(topsum::detail::normal_quantile(1.0) == doctest::Approx(0.0));
  CHECK(topsum::detail::normal_quantile(0.05) == doctest::Approx(1.959963984540054));
  CHECK(topsum::detail::normal_quantile(0.01) == doctest::Approx(2.575829303548901));
  CHECK(topsum::detail::normal_quantile(2e-9) == doctest::Approx(5.997807015).epsilon(1e-9));
  for (double const x : {1e-8, 0.1, 0.5, 0.99, 1.0, 2.5, 7.9, 30.0})
    CHECK(topsum::detail::log_gamma(x) == doctest::Approx(std::lgamma(x)).epsilon(1e-9));
}

// ---------------------------------------------------------------------------------------------------------------------
// Where they run

TEST_CASE("thresholds have the same bits on every instruction set") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t step = 0; step < 7; ++step) gradients.push_back(make_input<float>(input::laplace, 9001, step));
    auto const want = run(rule, gradients, topsum::host{topsum::instruction_set::portable});
    for (auto const set : {topsum::instruction_set::avx2, topsum::instruction_set::avx512}) {
      auto const got = run(rule, gradients, topsum::host{set});
      for (std::size_t step = 0; step < 7; ++step) {
        CHECK(got[step].threshold == want[step].threshold);
        CHECK(got[step].indices == want[step].indices);
      }
    }
  });
}

TEST_CASE("no rule reads anything back to the host while it selects") {
  for_every_rule([](auto const& rule) {
    CAPTURE(topsum::to_text(rule));
    test::archetype_backend backend;
    topsum::layer_wise const policy{rule};
    std::vector<std::size_t> reads;
    topsum::laws::select_steps<float, std::uint32_t>(policy, layers, backend, input::laplace, 3,
                                                     [&](auto, bool, auto const& got, auto const&) {
                                                       CHECK(!got.indices.empty());
                                                       reads.push_back(backend.reads());
                                                     });
    CHECK(reads == std::vector<std::size_t>{4, 8, 12});  // all of them by the test itself
  });
}

TEST_CASE("validate says no to every bad parameter of an estimating rule, and what to write instead") {
  auto const refuses = [](auto const& stage) {
    try {
      stage.validate();
      return false;
    } catch (topsum::error const& e) {
      return e.code() == topsum::errc::bad_argument && std::string{e.what()}.size() > 40;
    }
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(refuses(topsum::sampled_threshold{.density = 0}));
  CHECK(refuses(topsum::sampled_threshold{.sample_ratio = 0}));
  CHECK(refuses(topsum::sampled_threshold{.sample_ratio = 1.5}));
  CHECK(refuses(topsum::sampled_threshold{.lower_bound = nan}));
  CHECK(refuses(topsum::sampled_threshold{.upper_bound = 0.9}));
  CHECK(refuses(topsum::gaussian_threshold{.density = nan}));
  CHECK(refuses(topsum::exponential_threshold{.density = 2}));
  CHECK(refuses(topsum::exponential_threshold{.first_ratio = 1}));
  CHECK(refuses(topsum::exponential_threshold{.stages = 0}));
  CHECK(refuses(topsum::exponential_threshold{.stages = 6}));
  CHECK(refuses(topsum::exponential_threshold{.adapt_every = 0}));
  CHECK(refuses(topsum::exponential_threshold{.tolerance = -1}));
  CHECK(refuses(topsum::bisected_threshold{.density = -1}));
  CHECK(refuses(topsum::bisected_threshold{.every = 0}));
  CHECK(refuses(topsum::fixed_threshold{}));
  CHECK(refuses(topsum::fixed_threshold{.threshold = nan}));
  CHECK(refuses(topsum::fixed_threshold{.threshold = 1, .density = 0}));
  CHECK(refuses(topsum::fixed_threshold{.threshold = 1, .lowering = 0}));
  CHECK(refuses(topsum::shared_random{.density = 0}));
  for_every_rule([&](auto const& rule) { CHECK(!refuses(rule)); });
  CHECK(!refuses(topsum::shared_random{.density = 0, .k = 3}));
}
