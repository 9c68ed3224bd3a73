// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times exchanges made of others.
#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;

namespace {

constexpr topsum::hierarchical default_in_threes{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 3}};
constexpr topsum::hierarchical all_applied{topsum::recursive_doubling{}, topsum::gather_all{}, {.ranks_per_node = 2}};
// Both levels select again, and hand sums back.
constexpr topsum::hierarchical reselecting{topsum::merge_tree{}, topsum::interleaved_quota{}, {.ranks_per_node = 4}};
constexpr topsum::hierarchical states_within{
    topsum::ok_topk{.boundaries_every = 2, .threshold_every = 3}, topsum::spar_reduce_scatter{}, {.ranks_per_node = 3}};

static_assert(all_applied.kind == topsum::exchange_kind::union_of);
static_assert(reselecting.kind == topsum::exchange_kind::reselecting);

}  // namespace

TEST_CASE("hierarchical keeps the laws of exchanges") {
  check_corners<float>(default_in_threes, 2);
  check_exchange<float>(default_in_threes, 3, 5);
  check_exchange<double, std::uint64_t>(all_applied, 2, 3);
  check_exchange<float>(reselecting, 3, 11);
  check_exchange<float>(states_within, 4, 1);
}

TEST_CASE("hierarchical takes any number of ranks for a node") {
  for (int const each : {1, 2, 8, 100}) {
    test::expect_none(topsum::laws::exchange<float>(
        topsum::hierarchical{topsum::gather_all{}, topsum::gather_all{}, {.ranks_per_node = each}}, 5, 97, 2,
        topsum::top_k{.k = 20}));
  }
}

TEST_CASE("hierarchies nest") {
  topsum::hierarchical const node{topsum::gather_all{}, topsum::merge_tree{}, {.ranks_per_node = 2}};
  topsum::hierarchical const rack{node, topsum::ok_topk{}, {.ranks_per_node = 4}};
  topsum::hierarchical const outward{
      topsum::gather_all{},
      topsum::hierarchical{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 2}},
      {.ranks_per_node = 2}};
  for (int const ranks : {1, 3, 8}) {
    test::expect_none(topsum::laws::exchange<float>(rack, ranks, 97, 3, topsum::top_k{.k = 20}));
    test::expect_none(topsum::laws::exchange<float>(outward, ranks, 97, 3, topsum::top_k{.k = 20}));
  }
}

TEST_CASE("losses of a codec stay in residuals, under hierarchical") {
  test::check_losses(default_in_threes);
  test::check_losses(all_applied);
  test::check_losses(reselecting);
}

TEST_CASE("automatic keeps the laws of exchanges, whichever it chooses") {
  // Only a message costs, only a byte, only an entry.
  for (topsum::exchange_rates const rates :
       {topsum::exchange_rates{.alpha = 1}, topsum::exchange_rates{.beta = 1}, topsum::exchange_rates{.gamma = 1}}) {
    check_exchange<float>(topsum::automatic{rates}, 2, 3);
  }
  check_exchange<float>(
      topsum::automatic{topsum::exchange_rates{.alpha = 1}, topsum::merge_tree{}, topsum::spar_reduce_scatter{}}, 2, 9);
}

TEST_CASE("automatic keeps what every rank's result has in common where it measures") {
  // Which exchange it is may differ from run to run, so results may; ranks still agree.
  for (int const ranks : {1, 2, 5}) {
    auto const names = topsum::local::run(ranks, [](topsum::local::communicator& comm) {
      auto plan = topsum::plan_allreduce<float>(comm, 1009, topsum::automatic{});
      std::vector<float> x(1009, 1.0F);
      auto const done = plan(std::span<float>{x});
      CHECK(done.predicted_seconds.has_value());
      CHECK(*done.predicted_seconds >= 0);
      return std::string{done.exchange};
    });
    for (auto const& name : names) CHECK(name == names[0]);
  }
}

TEST_CASE("losses of a codec stay in residuals, under automatic") {
  test::check_losses(topsum::automatic{topsum::exchange_rates{.beta = 1}});
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("exchanges made of others keep the laws in a memory space of its own") {
  check_exchange<float>(default_in_threes, 2, 7, test::archetype_backend{});
  check_exchange<float>(topsum::automatic{topsum::exchange_rates{.beta = 1}}, 2, 5, test::archetype_backend{});
}
#endif
