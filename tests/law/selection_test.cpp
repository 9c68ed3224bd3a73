// SPDX-License-Identifier: BSL-1.0
// The laws of selection policies times every scope, rule, value and index type.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <topsum/testing/selection_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#if __has_include("support/archetype_backend.hpp")
#include "support/archetype_backend.hpp"
#endif

namespace {

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

std::vector<topsum::layout> layouts() {
  return {
      0,
      1,
      2,
      97,
      1009,
      topsum::layout{{"a", {7, 5}}, {"none", {0, 3}}, {"b", {41}}, {"scalar", {}}, {"c", {2, 13}}, {"d", {3, 8, 2, 2}}},
      topsum::layout{{"none", {0}}, {"none too", {4, 0}}},
      topsum::layout{std::vector<topsum::tensor>{}},
      topsum::layout{{"one", {1}}, {"two", {1}}, {"three", {1}}, {"long", {300}}},
  };
}

// The laws for one rule under every scope.
template <class T, class I, class Rule, class B>
void check_rule(Rule const& rule, topsum::layout const& shapes, B const& on) {
  expect_none(topsum::laws::selection_policy<T, I>(topsum::global{rule}, shapes, on, 5));
  expect_none(topsum::laws::selection_policy<T, I>(topsum::layer_wise{rule}, shapes, on, 5));
  if (shapes.tensors().size() < 3) return;
  expect_none(topsum::laws::selection_policy<T, I>(topsum::all_dimension{rule}, shapes, on, 3));
  expect_none(
      topsum::laws::selection_policy<T, I>(topsum::all_dimension{rule, {.along = topsum::axis::first}}, shapes, on, 3));
  expect_none(topsum::laws::selection_policy<T, I>(
      topsum::chunked{rule, topsum::tiles{.height = 3, .width = 4, .fit = topsum::chunk_fit::pad_last}}, shapes, on,
      3));
  expect_none(topsum::laws::selection_policy<T, I>(topsum::chunked{rule, topsum::runs{.length = 16}}, shapes, on, 3));
}

// Rules that estimate a threshold or draw at random, with parameters that make them adapt, cut, and fall back.
template <class T, class I, class B>
void check_estimating_rules(B const& on) {
  using topsum::tail_fit;
  for (topsum::layout const& shapes : layouts()) {
    if (shapes.size() > 500) continue;
    CAPTURE(shapes.size());
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{40}}) {
      check_rule<T, I>(topsum::sampled_threshold{.k = k}, shapes, on);
      check_rule<T, I>(topsum::gaussian_threshold{.k = k}, shapes, on);
      check_rule<T, I>(topsum::bisected_threshold{.k = k, .every = 2}, shapes, on);
      check_rule<T, I>(topsum::fixed_threshold{.threshold = 4, .k = k}, shapes, on);
      check_rule<T, I>(topsum::shared_random{.k = k, .seed = 5}, shapes, on);
      for (auto const fit : {tail_fit::exponential, tail_fit::gamma, tail_fit::generalized_pareto})
        check_rule<T, I>(topsum::exponential_threshold{.k = k, .fit = fit, .stages = 2, .adapt_every = 2}, shapes, on);
    }
    check_rule<T, I>(topsum::sampled_threshold{.density = 0.1, .sample_ratio = 0.3, .at_most = 60}, shapes, on);
    check_rule<T, I>(topsum::sampled_threshold{.density = 0.1, .max_adaptations = 0, .at_most = 3}, shapes, on);
    check_rule<T, I>(topsum::gaussian_threshold{.density = 0.1, .at_most = 60}, shapes, on);
    check_rule<T, I>(topsum::gaussian_threshold{.density = 1.0, .max_adaptations = 0}, shapes, on);
    check_rule<T, I>(topsum::bisected_threshold{.density = 0.1, .every = 1, .at_most = 60}, shapes, on);
    check_rule<T, I>(topsum::bisected_threshold{.density = 0.1, .max_bisections = 0, .at_most = 0}, shapes, on);
    check_rule<T, I>(topsum::fixed_threshold{.threshold = 1e30, .density = 0.1, .lowering = 1e-20}, shapes, on);
    check_rule<T, I>(topsum::fixed_threshold{.threshold = 2, .density = 1, .lowering = 1, .at_most = 5}, shapes, on);
    check_rule<T, I>(topsum::shared_random{.density = 0.3, .at_most = 9}, shapes, on);
    check_rule<T, I>(topsum::exponential_threshold{.density = 0.1, .adapt_every = 1, .at_most = 60}, shapes, on);
  }
}

template <class T, class I, class B>
void check_rules(B const& on) {
  for (topsum::layout const& shapes : layouts()) {
    CAPTURE(shapes.size());
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{40}, shapes.size()}) {
      check_rule<T, I>(topsum::top_k{.k = k}, shapes, on);
      check_rule<T, I>(topsum::reused_threshold{.k = k, .every = 3}, shapes, on);
    }
    for (double const density : {0.001, 0.1, 0.5, 1.0}) {
      check_rule<T, I>(topsum::top_k{.density = density}, shapes, on);
      check_rule<T, I>(topsum::reused_threshold{.density = density, .every = 2}, shapes, on);
    }
    check_rule<T, I>(topsum::top_k{.density = 0.5, .at_most = 3}, shapes, on);
    check_rule<T, I>(topsum::reused_threshold{.density = 0.2, .every = 3, .at_most = 5}, shapes, on);
    check_rule<T, I>(topsum::reused_threshold{.density = 0.1, .every = 3, .nudge = 1, .at_most = 60}, shapes, on);
    check_rule<T, I>(topsum::reused_threshold{.density = 0.1, .every = 1, .at_most = 0}, shapes, on);
  }
}

}  // namespace

TEST_CASE("every selection policy keeps the laws for float and 32-bit indices") {
  check_rules<float, std::uint32_t>(topsum::host{});
}
TEST_CASE("every selection policy keeps the laws for double and 32-bit indices") {
  check_rules<double, std::uint32_t>(topsum::host{});
}
TEST_CASE("every selection policy keeps the laws for float and 64-bit indices") {
  check_rules<float, std::uint64_t>(topsum::host{});
}
TEST_CASE("every selection policy keeps the laws for double and 64-bit indices") {
  check_rules<double, std::uint64_t>(topsum::host{});
}

TEST_CASE("every selection policy keeps the laws for half and 32-bit indices") {
  check_rules<topsum::half, std::uint32_t>(topsum::host{});
}
TEST_CASE("every selection policy keeps the laws for bfloat16 and 64-bit indices") {
  check_rules<topsum::bfloat16, std::uint64_t>(topsum::host{});
}
TEST_CASE("rules that estimate or draw keep the laws") {
  check_estimating_rules<float, std::uint32_t>(topsum::host{});
  check_estimating_rules<double, std::uint64_t>(topsum::host{topsum::instruction_set::portable, 0});
}

TEST_CASE("every selection policy keeps the laws without vector instructions and with little scratch") {
  check_rules<float, std::uint32_t>(topsum::host{topsum::instruction_set::portable, 0});
}

TEST_CASE("a selection policy keeps the laws over a hundred thousand values") {
  topsum::layout const shapes{{"a", {100, 999}}, {"b", {100}}};
  expect_none(topsum::laws::selection_policy<float>(
      topsum::layer_wise{topsum::reused_threshold{.density = 0.01, .every = 2}}, shapes, topsum::host{}, 3));
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("every selection policy keeps the laws in a memory space of its own") {
  check_rules<float, std::uint32_t>(test::archetype_backend{});
  check_estimating_rules<float, std::uint32_t>(test::archetype_backend{});
}
#endif
