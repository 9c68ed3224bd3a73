// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times every exchange, over 1 to 8 ranks as threads.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <topsum/testing/exchange_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/even_values.hpp"

#if __has_include("support/archetype_backend.hpp")
#include "support/archetype_backend.hpp"
#endif

namespace {

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

// Every number of ranks with one n and one k, which go round as `turn` does.
template <class T, class I = std::uint32_t, class X, class... B>
void check_exchange(X const& exchange, std::uint64_t steps, std::size_t turn, B const&... on) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto const before = static_cast<std::size_t>(ranks) - 1;
    std::vector<std::size_t> const sizes{0, 1, 2, before, 97, 1009};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::size_t const n = sizes[i];
      std::vector<std::size_t> const counts{0, 1, before, n};
      for (std::size_t j = 0; j < counts.size(); ++j) {
        if (i != turn % sizes.size() || j != turn % counts.size()) continue;
        CAPTURE(counts[j]);
        expect_none(topsum::laws::exchange<T, I>(exchange, ranks, n, steps, on..., topsum::top_k{.k = counts[j]}));
      }
    }
    turn += 5;
  }
}

// Three ranks with every n and k.
template <class T, class X>
void check_corners(X const& exchange, std::uint64_t steps) {
  for (std::size_t const n : {0U, 1U, 2U, 97U}) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{2}, n}) {
      CAPTURE(k);
      expect_none(topsum::laws::exchange<T>(exchange, 3, n, steps, topsum::top_k{.k = k}));
    }
  }
}

// As many steps as it takes to refresh, place boundaries and reuse.
constexpr topsum::ok_topk lively{.boundaries_every = 2, .threshold_every = 3, .bucket = 2, .balance_above = 1.5};
constexpr topsum::ok_topk one_by_one{.boundaries_every = 1, .threshold_every = 1, .bucket = 1, .region_capacity = 1};
constexpr topsum::ok_topk all_at_once{
    .boundaries_every = 3, .threshold_every = 2, .bucket = 100, .region_capacity = 100};

constexpr topsum::interleaved_quota collecting{.dropped = topsum::interleaved_quota::residual_rule::collection};

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

TEST_CASE("ok_topk keeps the laws of exchanges with its default parameters") {
  check_corners<float>(topsum::ok_topk{}, 2);
  check_exchange<float>(topsum::ok_topk{}, 2, 11);
  check_exchange<double>(topsum::ok_topk{}, 2, 6);
}

TEST_CASE_TEMPLATE("every exchange keeps the laws for 16-bit values", T, topsum::half, topsum::bfloat16) {
  check_exchange<T>(topsum::dense{}, 2, 5);
  check_exchange<T>(topsum::gather_all{}, 2, 8);
  check_exchange<T>(lively, 4, 3);
  check_exchange<T>(collecting, 3, 2);
}

TEST_CASE("ok_topk keeps the laws of exchanges with short periods") { check_exchange<float>(lively, 6, 1); }

TEST_CASE("ok_topk keeps the laws of exchanges with one message in flight and tight regions") {
  check_exchange<float>(one_by_one, 2, 8);
}

TEST_CASE("ok_topk keeps the laws of exchanges with every message in flight and 64-bit indices") {
  check_exchange<double, std::uint64_t>(all_at_once, 3, 3);
}

TEST_CASE("every exchange keeps the laws with a codec that loses: losses stay in residuals") {
  topsum::coded const lossy{topsum::elias_fano{}, test::even_values{}};
  for (int const ranks : {1, 3, 8}) {
    for (std::size_t const k : {0U, 40U, 97U}) {
      topsum::top_k const rule{.k = k};
      expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, ranks, 97, 3, rule, lossy));
      expect_none(topsum::laws::exchange<float>(one_by_one, ranks, 97, 3, rule, lossy));
      expect_none(topsum::laws::exchange<float>(lively, ranks, 97, 4, rule, lossy));
      expect_none(topsum::laws::exchange<float>(topsum::interleaved_quota{}, ranks, 97, 3, rule, lossy));
      expect_none(topsum::laws::exchange<float>(collecting, ranks, 97, 3, topsum::layer_wise{rule}, lossy));
    }
  }
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
  check_exchange<float>(topsum::interleaved_quota{}, 2, 1, on);
  check_exchange<float>(collecting, 2, 8, on);
  check_exchange<float>(topsum::dense{}, 2, 0, on);
  check_exchange<topsum::half>(lively, 2, 4, on);
  check_exchange<topsum::half>(topsum::dense{}, 2, 6, on);
}
#endif
