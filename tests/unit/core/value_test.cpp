// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <topsum/core/memory.hpp>
#include <topsum/core/value.hpp>
#include <vector>

TEST_CASE_TEMPLATE("magnitudes compare as integers as absolute values do", T, float, double) {
  using limits = std::numeric_limits<T>;
  std::vector<T> const rising{0, limits::denorm_min(),  limits::min(), T(1e-8),       T(0.5),
                              1, 1 + limits::epsilon(), T(1e8),        limits::max(), limits::infinity()};
  for (std::size_t i = 0; i + 1 < rising.size(); ++i) {
    for (T const sign : {T(1), T(-1)}) {
      CHECK(topsum::magnitude(sign * rising[i]) < topsum::magnitude(-sign * rising[i + 1]));
      CHECK(topsum::magnitude(sign * rising[i]) == topsum::magnitude(rising[i]));
    }
    CHECK(topsum::from_magnitude<T>(topsum::magnitude(-rising[i])) == rising[i]);
    CHECK(topsum::is_finite(-rising[i]));
  }
  CHECK(topsum::magnitude(limits::quiet_NaN()) > topsum::magnitude(limits::infinity()));
  CHECK(!topsum::is_finite(limits::infinity()));
  CHECK(!topsum::is_finite(-limits::infinity()));
  CHECK(!topsum::is_finite(limits::quiet_NaN()));
  CHECK(!topsum::is_finite(-limits::quiet_NaN()));
}

TEST_CASE_TEMPLATE("a product is rounded before it is added", T, float, double) {
  // (1 + e)^2 - (1 + 2e) = e^2 when fused, 0 when the product is rounded first.
  volatile T const x = 1 + std::numeric_limits<T>::epsilon();
  volatile T const y = -(1 + 2 * std::numeric_limits<T>::epsilon());
  CHECK(topsum::multiply_then_add<T>(x, x, y) == 0);
  CHECK(std::fma(T{x}, T{x}, T{y}) != 0);
}

TEST_CASE("a host buffer knows its size, may be empty, and refuses what cannot be") {
  topsum::host_buffer<double> const none;
  CHECK(none.size() == 0);
  CHECK(none.view().empty());
  topsum::host_buffer<double> some{3};
  some.view()[2] = 5;
  auto const moved = std::move(some);
  CHECK(moved.size() == 3);
  CHECK(moved.view()[2] == 5);
  CHECK_THROWS_AS(topsum::host_buffer<double>{std::numeric_limits<std::size_t>::max() / 4}, std::bad_alloc);
}
