// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <topsum/core/density.hpp>
#include <topsum/core/piece.hpp>

using topsum::density_count;
using topsum::density_parts;
using topsum::selected_count;

TEST_CASE("k is computed in integers: every percentage of every hundred is exact") {
  // 0.29 * 100 is 28.999999999999996 in doubles.
  for (std::size_t percent = 1; percent <= 100; ++percent) {
    for (std::size_t const hundreds : {std::size_t{1}, std::size_t{7}, std::size_t{100}, std::size_t{123456789}}) {
      auto const parts = density_parts(static_cast<double>(percent) / 100, "test");
      CHECK(parts == percent * 10000000);
      CHECK(density_count(parts, 100 * hundreds) == percent * hundreds);
    }
  }
}

TEST_CASE("k is floor(density n), at least 1 and at most n, and 0 for an empty tensor") {
  auto const thousandth = density_parts(0.001, "test");
  CHECK(density_count(thousandth, 0) == 0);
  CHECK(density_count(thousandth, 1) == 1);
  CHECK(density_count(thousandth, 999) == 1);
  CHECK(density_count(thousandth, 1999) == 1);
  CHECK(density_count(thousandth, 2000) == 2);
  CHECK(density_count(density_parts(1, "test"), 12345) == 12345);
  CHECK(density_count(density_parts(1e-12, "test"), 5000) == 1);
}

TEST_CASE("k is exact for sizes that no product of 64 bits would hold") {
  auto const half = density_parts(0.5, "test");
  CHECK(density_count(half, std::size_t{1} << 62) == std::size_t{1} << 61);
  CHECK(density_count(density_parts(1, "test"), std::numeric_limits<std::size_t>::max()) ==
        std::numeric_limits<std::size_t>::max());
}

TEST_CASE("densities outside (0, 1] are refused with what to write") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  double const infinity = std::numeric_limits<double>::infinity();
  for (double const bad : {0.0, -0.0, -0.5, 1.0000001, 2.0, nan, infinity, -infinity}) {
    CHECK_THROWS_WITH_AS(static_cast<void>(density_parts(bad, "my_rule")), doctest::Contains("my_rule: .density"),
                         topsum::error);
  }
  try {
    static_cast<void>(density_parts(1.5, "my_rule"));
    CHECK(false);
  } catch (topsum::error const& e) {
    CHECK(e.code() == topsum::errc::bad_argument);
    CHECK(e.rank() == -1);
  }
}

TEST_CASE("a count given instead of a density is taken as it is, at most the size, and the density not looked at") {
  CHECK(selected_count(-1, 7, 100, "test") == 7);
  CHECK(selected_count(0.5, 700, 100, "test") == 100);
  CHECK(selected_count(0.5, 0, 100, "test") == 0);
  CHECK(selected_count(0.5, std::nullopt, 100, "test") == 50);
}

TEST_CASE("the capacities of pieces add up") {
  topsum::piece const pieces[] = {{0, 10, 3, 4}, {10, 0, 0, 0}, {10, 5, 5, 5}};
  CHECK(topsum::total_capacity(pieces) == 9);
  CHECK(topsum::total_capacity({}) == 0);
}
