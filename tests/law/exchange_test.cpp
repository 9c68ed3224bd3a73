// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times every exchange, over 1 to 8 ranks as threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <topsum/topsum.hpp>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;
using test::expect_none;

namespace {

// As many steps as it takes to refresh, place boundaries and reuse.
constexpr topsum::ok_topk lively{.boundaries_every = 2, .threshold_every = 3, .bucket = 2, .balance_above = 1.5};
constexpr topsum::ok_topk one_by_one{.boundaries_every = 1, .threshold_every = 1, .bucket = 1, .region_capacity = 1};
constexpr topsum::ok_topk all_at_once{
    .boundaries_every = 3, .threshold_every = 2, .bucket = 100, .region_capacity = 100};

}  // namespace

TEST_CASE("dense keeps the laws of exchanges") {
  check_corners<float>(topsum::dense{}, 2);
  check_exchange<float>(topsum::dense{}, 2, 7);
  check_exchange<double>(topsum::dense{}, 2, 2);
}

TEST_CASE("gather_all keeps the laws of exchanges") {
  check_corners<float>(topsum::gather_all{}, 2);
  check_exchange<float>(topsum::gather_all{}, 3, 9);
  check_exchange<double, std::uint64_t>(topsum::gather_all{}, 2, 4);
}

TEST_CASE("ok_topk keeps the laws of exchanges with its default parameters") {
  check_corners<float>(topsum::ok_topk{}, 2);
  check_exchange<float>(topsum::ok_topk{}, 2, 11);
  check_exchange<double>(topsum::ok_topk{}, 2, 6);
}

TEST_CASE_TEMPLATE("every exchange keeps the laws for 16-bit values", T, topsum::half, topsum::bfloat16) {
  check_exchange<T>(topsum::dense{}, 2, 5);
  check_exchange<T>(topsum::gather_all{}, 2, 8);
  check_exchange<T>(lively, 4, 3);
}

TEST_CASE("ok_topk keeps the laws of exchanges with short periods") { check_exchange<float>(lively, 6, 1); }

TEST_CASE("ok_topk keeps the laws of exchanges with one message in flight and tight regions") {
  check_exchange<float>(one_by_one, 2, 8);
}

TEST_CASE("ok_topk keeps the laws of exchanges with every message in flight and 64-bit indices") {
  check_exchange<double, std::uint64_t>(all_at_once, 3, 3);
}

TEST_CASE("losses of a codec stay in residuals, under gather_all and ok_topk") {
  test::check_losses(topsum::gather_all{});
  test::check_losses(one_by_one);
  test::check_losses(lively);
}

TEST_CASE("ok_topk keeps the laws of exchanges with reused thresholds by layers") {
  for (int const ranks : {2, 5}) {
    expect_none(topsum::laws::exchange<float>(
        lively, ranks, 1009, 7, topsum::layer_wise{topsum::reused_threshold{.density = 0.05, .every = 3}}));
  }
}

TEST_CASE("gather_all keeps the laws of exchanges with reused thresholds") {
  expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, 3, 1009, 7,
                                            topsum::reused_threshold{.density = 0.05, .every = 3}));
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("every exchange keeps the laws in a memory space of its own") {
  test::archetype_backend const on;
  check_exchange<float>(lively, 4, 10, on);
  check_exchange<float>(topsum::gather_all{}, 2, 5, on);
  check_exchange<float>(topsum::dense{}, 2, 0, on);
  check_exchange<topsum::half>(lively, 2, 4, on);
  check_exchange<topsum::half>(topsum::dense{}, 2, 6, on);
}
#endif
