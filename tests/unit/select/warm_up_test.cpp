// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <topsum/error.hpp>
#include <topsum/select/exponential_warm_up.hpp>

using topsum::exponential_warm_up;

TEST_CASE("the default warm-up is DGC's") {
  exponential_warm_up const dgc;
  double const densities[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001};
  for (std::uint64_t phase = 0; phase < 6; ++phase) CHECK(dgc.density(phase) == densities[phase]);
  CHECK(dgc.density(std::numeric_limits<std::uint64_t>::max()) == 0.001);
}

TEST_CASE("a warm-up may begin dense, and may be none") {
  exponential_warm_up const dense{.first = 1, .factor = 0.1, .last = 0.01};
  CHECK(dense.density(0) == 1);
  CHECK(dense.density(1) == 0.1);
  CHECK(dense.density(9) == 0.01);
  exponential_warm_up const constant{.first = 0.02, .last = 0.02};
  for (std::uint64_t phase = 0; phase < 3; ++phase) CHECK(constant.density(phase) == 0.02);
}

TEST_CASE("a warm-up whose densities make no sense is refused") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (exponential_warm_up const& bad :
       {exponential_warm_up{.first = 0}, exponential_warm_up{.first = 1.1}, exponential_warm_up{.first = nan},
        exponential_warm_up{.factor = 0}, exponential_warm_up{.factor = 1}, exponential_warm_up{.factor = nan},
        exponential_warm_up{.last = 0}, exponential_warm_up{.last = 0.3}, exponential_warm_up{.last = nan}}) {
    CHECK_THROWS_AS(bad.validate(), topsum::error);
    CHECK_THROWS_AS(static_cast<void>(bad.density(0)), topsum::error);
  }
}
