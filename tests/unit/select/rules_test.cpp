// SPDX-License-Identifier: BSL-1.0
// Rules and scopes against selection by sorting, and how a reused threshold follows a drifting count.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <topsum/testing/selection_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/oracle.hpp"

namespace {

using topsum::laws::every_input;
using topsum::laws::input;

// Steps of a policy against the oracle's, with error feedback and nothing ever applied.
template <class T, class I, class Policy>
void check(Policy const& policy, topsum::layout const& shapes, input kind, std::uint64_t steps) {
  topsum::host backend;
  std::vector<test::oracle::target> const targets = test::oracle::targets_of(policy.pieces(shapes));
  std::vector<T> thresholds(targets.size());
  topsum::laws::select_steps<T, I>(
      policy, shapes, backend, kind, steps,
      [&](std::uint64_t step, bool fits, auto const& got, std::vector<T> const& acc) {
        CHECK(fits);
        test::oracle::sparse<T> want;
        for (std::size_t p = 0; p < targets.size(); ++p) {
          auto const part = test::oracle::select_piece(policy.rule, acc, targets[p], step, thresholds[p]);
          want.insert(want.end(), part.begin(), part.end());
        }
        test::oracle::in_order(want);
        bool same = got.indices.size() == want.size();
        for (std::size_t e = 0; same && e < want.size(); ++e)
          same = got.indices[e] == want[e].index && got.values[e] == want[e].value;
        CHECK_MESSAGE(same, topsum::to_text(policy) << " on " << std::string{to_string(kind)} << ", step " << step);
      });
}

topsum::layout const layers{{"a", {7, 5}}, {"none", {0, 3}}, {"b", {410}}, {"scalar", {}}, {"c", {2, 13}}};

}  // namespace

TEST_CASE("top_k equals selection by sorting, ties to the smaller index") {
  for (input const kind : every_input) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{10}, std::size_t{300}, std::size_t{473}}) {
      check<float, std::uint32_t>(topsum::global{topsum::top_k{.k = k}}, layers, kind, 3);
      check<double, std::uint64_t>(topsum::layer_wise{topsum::top_k{.k = k}}, layers, kind, 3);
    }
    check<float, std::uint32_t>(topsum::layer_wise{topsum::top_k{.density = 0.3, .at_most = 4}}, layers, kind, 3);
  }
}

TEST_CASE("reused_threshold equals selection by sorting and comparing, step after step") {
  for (input const kind : every_input) {
    check<float, std::uint32_t>(topsum::global{topsum::reused_threshold{.density = 0.1, .every = 5}}, layers, kind, 17);
    check<float, std::uint32_t>(
        topsum::global{topsum::reused_threshold{.density = 0.1, .every = 5, .nudge = 1.3, .at_most = 90}}, layers, kind,
        17);
    check<double, std::uint32_t>(topsum::layer_wise{topsum::reused_threshold{.density = 0.2, .every = 4}}, layers, kind,
                                 17);
    check<float, std::uint32_t>(topsum::global{topsum::reused_threshold{.k = 20, .every = 3, .at_most = 7}}, layers,
                                kind, 10);
    check<float, std::uint32_t>(topsum::global{topsum::reused_threshold{.k = 20, .every = 1}}, layers, kind, 4);
  }
}

TEST_CASE("the threshold moves below 2k/3 and above 5k/4, and stays at both") {
  // What a single rank selects from each gradient in turn, without a residual.
  auto const results = [](std::size_t k, std::vector<std::vector<float>> const& gradients) {
    std::vector<std::size_t> counts;
    topsum::local::run(1, [&](topsum::local::communicator& comm) {
      auto plan = topsum::plan_allreduce<float>(comm, 12, topsum::reused_threshold{.k = k, .every = 100, .at_most = 12},
                                                topsum::no_residual{}, topsum::gather_all{});
      for (auto x : gradients) {
        x.resize(12);
        counts.push_back(plan(std::span<float>{x}).selected);
      }
    });
    return counts;
  };
  using counts = std::vector<std::size_t>;
  // The first gradient sets the threshold to 1; the last holds values just above, at and just below it.
  std::vector<float> const set3{3, 2, 1};
  std::vector<float> const set4{4, 3, 2, 1};
  std::vector<float> const probe{1.005F, -1.005F, 1, 0.995F, 0.98F};
  CHECK(results(3, {set3, {5, -5}, probe}) == counts{3, 2, 3});
  CHECK(results(3, {set3, {5}, probe}) == counts{3, 1, 4});
  CHECK(results(4, {set4, {5, 5, -5, 5, 5}, probe}) == counts{4, 5, 3});
  CHECK(results(4, {set4, {5, 5, -5, 5, 5, 5}, probe}) == counts{4, 6, 0});
}

TEST_CASE("k of a piece is floor(density size), at least 1, and never above at_most or the size") {
  topsum::top_k const rule{.density = 0.29};
  CHECK(rule.count(100) == 29);
  CHECK(rule.count(1) == 1);
  CHECK(rule.count(0) == 0);
  CHECK(topsum::top_k{.k = 5}.count(3) == 3);
  CHECK(topsum::top_k{.k = 5, .at_most = 2}.count(30) == 2);
  CHECK(topsum::top_k{.k = 5, .at_most = 20}.capacity(30) == 5);
  topsum::reused_threshold const reused{.k = 5, .at_most = 20};
  CHECK(reused.count(30) == 5);
  CHECK(reused.capacity(30) == 20);
  CHECK(reused.capacity(10) == 10);
  CHECK(topsum::reused_threshold{.k = 5}.capacity(30) == 5);
}

TEST_CASE("global makes one piece, layer_wise one of each tensor, empty ones too") {
  auto const one = topsum::global{topsum::top_k{.k = 3}}.pieces(layers);
  CHECK(one == std::vector<topsum::piece>{{0, 472, 3, 3}});
  auto const each = topsum::layer_wise{topsum::top_k{.density = 0.1}}.pieces(layers);
  CHECK(each ==
        std::vector<topsum::piece>{{0, 35, 3, 3}, {35, 0, 0, 0}, {35, 410, 41, 41}, {445, 1, 1, 1}, {446, 26, 2, 2}});
}

TEST_CASE("nobody is asked for validity twice: validate says no to every bad parameter") {
  auto const refuses = [](auto const& stage) {
    try {
      stage.validate();
      return false;
    } catch (topsum::error const& e) {
      return e.code() == topsum::errc::bad_argument;
    }
  };
  CHECK(refuses(topsum::global{topsum::top_k{.density = 0}}));
  CHECK(refuses(topsum::layer_wise{topsum::reused_threshold{.density = 1.5}}));
  CHECK(refuses(topsum::reused_threshold{.every = 0}));
  CHECK(refuses(topsum::reused_threshold{.nudge = 0.99}));
  CHECK(!refuses(topsum::top_k{.density = 0, .k = 3}));
  CHECK(!refuses(topsum::reused_threshold{.density = -1, .k = 0, .every = 1, .nudge = 1}));
}
