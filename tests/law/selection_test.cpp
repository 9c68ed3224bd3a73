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
}
#endif
