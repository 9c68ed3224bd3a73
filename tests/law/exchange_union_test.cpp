// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times those of SparCML and gTopk.
#include <doctest/doctest.h>

#include <cstdint>
#include <topsum/topsum.hpp>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;
using test::expect_none;

TEST_CASE("merge_tree keeps the laws of exchanges") {
  check_corners<float>(topsum::merge_tree{}, 2);
  check_exchange<float>(topsum::merge_tree{}, 3, 1);
  check_exchange<double, std::uint64_t>(topsum::merge_tree{}, 2, 11);
}

TEST_CASE("recursive_doubling keeps the laws of exchanges") {
  check_corners<float>(topsum::recursive_doubling{}, 2);
  check_exchange<float>(topsum::recursive_doubling{}, 3, 3);
  check_exchange<double, std::uint64_t>(topsum::recursive_doubling{}, 2, 11);
}

TEST_CASE("split_gather keeps the laws of exchanges") {
  check_corners<float>(topsum::split_gather{}, 2);
  check_exchange<float>(topsum::split_gather{}, 3, 2);
  check_exchange<double, std::uint64_t>(topsum::split_gather{}, 2, 11);
}

TEST_CASE("trees and splits keep the laws for 16-bit values") {
  using T = topsum::half;
  check_exchange<T>(topsum::merge_tree{}, 2, 9);
  check_exchange<T>(topsum::recursive_doubling{}, 2, 4);
  check_exchange<T>(topsum::split_gather{}, 2, 7);
}

TEST_CASE("losses of a codec stay in residuals, under trees and splits") {
  test::check_losses(topsum::merge_tree{});
  test::check_losses(topsum::recursive_doubling{});
  test::check_losses(topsum::split_gather{});
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("trees and splits keep the laws in a memory space of its own") {
  test::archetype_backend const on;
  check_exchange<float>(topsum::merge_tree{}, 2, 3, on);
  check_exchange<float>(topsum::recursive_doubling{}, 2, 6, on);
  check_exchange<float>(topsum::split_gather{}, 2, 9, on);
}
#endif
