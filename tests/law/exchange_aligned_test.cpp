// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times those that agree on a support first.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;
using test::expect_none;

TEST_CASE("aligned{leader} keeps the laws of exchanges") {
  topsum::aligned const stage{topsum::leader{}};
  check_corners<float>(stage, 2);
  check_exchange<float>(stage, 5, 1);
  check_exchange<topsum::half>(stage, 2, 9);
}

TEST_CASE("aligned{owners} keeps the laws of exchanges") {
  topsum::aligned const stage{topsum::owners{}};
  check_corners<float>(stage, 2);
  check_exchange<float>(stage, 3, 1);
  check_exchange<double, std::uint64_t>(stage, 2, 11);
}

TEST_CASE("aligned exchanges keep the laws with codecs and momentum's accumulators") {
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  for (int const ranks : {1, 3, 8}) {
    topsum::top_k const rule{.k = 40};
    expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::leader{}}, ranks, 97, 3, rule, codec));
    expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::owners{}}, ranks, 97, 3,
                                              topsum::layer_wise{topsum::reused_threshold{.density = 0.1, .every = 2}},
                                              codec));
  }
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("aligned exchanges keep the laws in a memory space of its own") {
  test::archetype_backend const on;
  check_exchange<float>(topsum::aligned{topsum::leader{}}, 2, 4, on);
  check_exchange<float>(topsum::aligned{topsum::owners{}}, 2, 7, on);
}
#endif

TEST_CASE("aligned{leader} sums every rank's accumulators at the entries that the leader of the step selected") {
  constexpr int ranks = 3;
  constexpr std::size_t n = 30;
  topsum::local::run(ranks, [&](topsum::local::communicator comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 2}, topsum::sum{}, topsum::aligned{});
    for (std::size_t step = 0; step < 4; ++step) {
      // Rank r is large at 5r and 5r + 1; everybody has 1 elsewhere.
      std::vector<float> gradient(n, 1);
      auto const r = static_cast<std::size_t>(comm.rank());
      gradient[5 * r] = 100;
      gradient[5 * r + 1] = 50;
      auto const before = std::vector<float>(plan.residual().begin(), plan.residual().end());
      auto const report = plan(gradient);
      CHECK(report.result == 2);
      std::size_t const lead = step % ranks;
      for (std::size_t i = 0; i < n; ++i) {
        bool const in = i == 5 * lead || i == 5 * lead + 1;
        CHECK((gradient[i] != 0) == in);
        float const mine = before[i] + (i == 5 * r ? 100.0F : i == 5 * r + 1 ? 50.0F : 1.0F);
        CHECK(plan.residual()[i] == (in ? 0.0F : mine));
      }
    }
  });
}

TEST_CASE("aligned exchanges send 2m(P-1)/P words of values") {
  constexpr std::size_t n = 1200;
  constexpr std::size_t k = 120;
  for (int const ranks : {1, 2, 3, 4, 8}) {
    topsum::local::run(ranks, [&](topsum::local::communicator comm) {
      auto const P = static_cast<double>(ranks);
      auto const words = [&](auto const& stage) {
        auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, stage);
        auto gradient = topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike, n,
                                                           comm.rank(), ranks, 1);
        auto const report = plan(gradient);
        return static_cast<double>(report.bytes - report.control_bytes) / 4;
      };
      double const values = 2.0 * k * (P - 1) / P + 2 * P;
      double const children = std::ceil(std::log2(P));
      CHECK(words(topsum::aligned{topsum::leader{}}) <= values + children * (k * 11.0 / 32 + 1));
      double const share = k / P + 2;
      CHECK(words(topsum::aligned{topsum::owners{}}) <= values + 4 * P + (P - 1) * (share * 11 / 32 + 1));
    });
  }
}
