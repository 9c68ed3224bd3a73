// SPDX-License-Identifier: BSL-1.0
// The laws of selection policies times those that are more than a scope with a rule.
#include <doctest/doctest.h>

#include <array>
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

using topsum::all_dimension;
using topsum::alternate;
using topsum::chunked;
using topsum::exact_budget;
using topsum::global;
using topsum::layer_wise;
using topsum::top_k;

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

std::vector<topsum::layout> layouts() {
  return {
      0,
      1,
      97,
      topsum::layout{{"a", {7, 5}}, {"none", {0, 3}}, {"b", {41}}, {"scalar", {}}, {"c", {2, 13}}, {"d", {3, 8, 2, 2}}},
      topsum::layout{{"none", {0}}, {"none too", {4, 0}}},
      topsum::layout{{"one", {1}}, {"two", {1}}, {"three", {1}}, {"long", {300}}},
  };
}

template <class T, class I, class B>
void check_policies(B const& on) {
  auto const check = [&](auto const& policy, topsum::layout const& shapes, std::uint64_t steps) {
    expect_none(topsum::laws::selection_policy<T, I>(policy, shapes, on, steps));
  };
  for (topsum::layout const& shapes : layouts()) {
    CAPTURE(shapes.size());
    for (double const density : {0.001, 0.1, 0.34, 1.0}) {
      top_k const rule{.density = density};
      check(alternate{all_dimension{rule}, global{rule}}, shapes, 4);
      check(alternate{topsum::reused_threshold{.density = density, .every = 2}, layer_wise{rule}}, shapes, 6);
      check(alternate{alternate{rule, topsum::shared_random{.density = density}}, layer_wise{rule}}, shapes, 6);
      check(topsum::adtopk{.density = density, .warm_up = 3, .period = 2, .total_steps = 12}, shapes, 12);
      check(topsum::adtopk{.density = density, .of = topsum::adtopk::whole::gradient, .warm_up = 0, .period = 1},
            shapes, 7);
      check(exact_budget{layer_wise{rule}}, shapes, 2);
      check(exact_budget{all_dimension{rule}}, shapes, 2);
      check(exact_budget{all_dimension{rule, {.along = topsum::axis::first}}}, shapes, 2);
      check(exact_budget{chunked{rule, topsum::runs{.length = 16}}}, shapes, 2);
      check(exact_budget{chunked{rule,
                                 topsum::tiles{.height = 2, .width = 2, .fit = topsum::chunk_fit::largest_divisor}}},
            shapes, 2);
      check(alternate{exact_budget{layer_wise{rule}}, global{rule}}, shapes, 3);
    }
  }
}

}  // namespace

TEST_CASE("every composed policy keeps the laws for float and 32-bit indices") {
  check_policies<float, std::uint32_t>(topsum::host{});
}
TEST_CASE("every composed policy keeps the laws for double and 64-bit indices") {
  check_policies<double, std::uint64_t>(topsum::host{});
}
TEST_CASE("every composed policy keeps the laws for half") {
  check_policies<topsum::half, std::uint32_t>(topsum::host{});
}
#if __has_include("support/archetype_backend.hpp")
TEST_CASE("every composed policy keeps the laws in a memory space of its own") {
  check_policies<float, std::uint32_t>(test::archetype_backend{});
}
#endif

TEST_CASE("every scope and policy keeps the laws on random layouts") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::uint64_t draw = 0;
    auto const below = [&](std::uint64_t bound) {
      return static_cast<std::int64_t>(topsum::random_bits(seed, draw++) % bound);
    };
    std::vector<topsum::tensor> tensors;
    for (std::int64_t left = below(6); left >= 0; --left) {
      std::vector<std::int64_t> extents;
      for (std::int64_t dimensions = below(5); dimensions > 0; --dimensions)
        extents.push_back(below(8) == 0 ? below(2) : 1 + below(extents.size() < 2 ? 14 : 4));
      tensors.push_back({"t" + std::to_string(left), topsum::extents{extents}});
    }
    topsum::layout const shapes{tensors};
    double const density = std::array{0.001, 0.03, 0.2, 0.5, 1.0}[static_cast<std::size_t>(below(5))];
    auto const along = static_cast<topsum::axis>(below(4));
    CAPTURE(seed);
    CAPTURE(density);
    auto const check = [&](auto const& policy, std::uint64_t steps) {
      expect_none(topsum::laws::selection_policy<float>(policy, shapes, topsum::host{}, steps));
    };
    top_k const rule{.density = density};
    check(layer_wise{rule}, 2);
    check(all_dimension{rule, {.along = along}}, 2);
    check(all_dimension{topsum::reused_threshold{.density = density, .every = 2}, {.along = along}}, 3);
    check(chunked{rule, topsum::tiles{.height = static_cast<std::size_t>(1 + below(5)),
                                      .width = static_cast<std::size_t>(1 + below(5)),
                                      .fit = topsum::chunk_fit::pad_last}},
          2);
    check(topsum::adtopk{.density = density, .along = along, .warm_up = 2, .period = 1, .total_steps = 8}, 8);
    check(exact_budget{all_dimension{rule, {.along = along}}}, 2);
    check(alternate{chunked{rule, topsum::runs{.length = static_cast<std::size_t>(1 + below(20))}}, rule}, 2);
  }
}
