// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times those that work by quotas.
#include <doctest/doctest.h>

#include <cstdint>
#include <topsum/topsum.hpp>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;
using test::expect_none;

namespace {

constexpr topsum::interleaved_quota collecting{.dropped = topsum::interleaved_quota::residual_rule::collection};

}  // namespace

TEST_CASE("interleaved_quota keeps the laws of exchanges") {
  check_corners<float>(topsum::interleaved_quota{}, 2);
  check_corners<float>(collecting, 2);
  check_exchange<float>(topsum::interleaved_quota{}, 3, 1);
  check_exchange<float>(collecting, 3, 6);
  check_exchange<double, std::uint64_t>(topsum::interleaved_quota{.block = 1000}, 2, 11);
}

TEST_CASE("interleaved_quota keeps the laws of exchanges when it cuts and fills what was selected") {
  for (int const ranks : {1, 2, 5}) {
    for (auto const& stage : {topsum::interleaved_quota{}, collecting}) {
      expect_none(topsum::laws::exchange<float>(
          stage, ranks, 1009, 4, topsum::layer_wise{topsum::reused_threshold{.density = 0.05, .every = 3}}));
      expect_none(topsum::laws::exchange<float>(stage, ranks, 1009, 2, topsum::shared_random{.density = 0.1}));
      expect_none(topsum::laws::exchange<float>(stage, ranks, 97, 2, topsum::fixed_threshold{.threshold = 5, .k = 60}));
    }
  }
}

TEST_CASE("spar_reduce_scatter keeps the laws of exchanges") {
  check_corners<float>(topsum::spar_reduce_scatter{}, 2);
  check_exchange<float>(topsum::spar_reduce_scatter{}, 3, 1);
  check_exchange<double, std::uint64_t>(topsum::spar_reduce_scatter{}, 2, 11);
  for (int const ranks : {1, 2, 5})
    expect_none(
        topsum::laws::exchange<float>(topsum::spar_reduce_scatter{}, ranks, 1009, 3,
                                      topsum::layer_wise{topsum::reused_threshold{.density = 0.05, .every = 2}}));
}

TEST_CASE("quotas keep the laws for 16-bit values") {
  using T = topsum::bfloat16;
  check_exchange<T>(collecting, 3, 2);
  check_exchange<T>(topsum::spar_reduce_scatter{}, 3, 8);
}

TEST_CASE("losses of a codec stay in residuals, under quotas") {
  test::check_losses(topsum::interleaved_quota{});
  test::check_losses(collecting);
  test::check_losses(topsum::spar_reduce_scatter{});
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("quotas keep the laws in a memory space of its own") {
  test::archetype_backend const on;
  check_exchange<float>(topsum::interleaved_quota{}, 2, 1, on);
  check_exchange<float>(collecting, 2, 8, on);
  check_exchange<float>(topsum::spar_reduce_scatter{}, 2, 5, on);
}
#endif
