// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times exchanges made of others.
#include <doctest/doctest.h>

#include <cstdint>
#include <topsum/topsum.hpp>

#include "support/exchange_checks.hpp"

using test::check_corners;
using test::check_exchange;

namespace {

constexpr topsum::hierarchical default_in_threes{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 3}};
constexpr topsum::hierarchical all_applied{
    topsum::recursive_doubling{}, topsum::gather_all{}, {.ranks_per_node = 2}};
// Both levels select again, and hand sums back.
constexpr topsum::hierarchical reselecting{
    topsum::merge_tree{}, topsum::interleaved_quota{}, {.ranks_per_node = 4}};
constexpr topsum::hierarchical states_within{topsum::ok_topk{.boundaries_every = 2, .threshold_every = 3},
                                             topsum::spar_reduce_scatter{},
                                             {.ranks_per_node = 3}};

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
        topsum::hierarchical{topsum::gather_all{}, topsum::gather_all{}, {.ranks_per_node = each}}, 5,
        97, 2, topsum::top_k{.k = 20}));
  }
}

TEST_CASE("losses of a codec stay in residuals, under hierarchical") {
  test::check_losses(default_in_threes);
  test::check_losses(all_applied);
  test::check_losses(reselecting);
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("hierarchical keeps the laws in a memory space of its own") {
  check_exchange<float>(default_in_threes, 2, 7, test::archetype_backend{});
}
#endif
