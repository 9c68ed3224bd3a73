// SPDX-License-Identifier: BSL-1.0
// Laws of exchanges on a backend in a device's memory: over NCCL, and over ranks as threads that share the device.
#include <doctest/doctest.h>

#include "support/device_archetype.hpp"
#include "support/exchange_checks.hpp"

namespace {

template <class... X>
void check(auto const& on, X const&... exchanges) {
  std::size_t turn = 0;
  (test::check_exchange<float>(exchanges, 2, turn++, on), ...);
}

}  // namespace

TEST_CASE("exchanges that all selections take keep their laws over NCCL") {
  check(test::over_nccl{}, topsum::dense{}, topsum::gather_all{}, topsum::ok_topk{}, topsum::recursive_doubling{},
        topsum::split_gather{}, topsum::merge_tree{});
}

TEST_CASE("exchanges of fixed sizes keep their laws over NCCL") {
  check(test::over_nccl{}, topsum::interleaved_quota{}, topsum::spar_reduce_scatter{},
        topsum::aligned{topsum::leader{}}, topsum::aligned{topsum::owners{}});
}

TEST_CASE("exchanges made of others keep their laws over NCCL") {
  check(test::over_nccl{}, topsum::hierarchical{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 3}});
}

TEST_CASE("codes other than plain entries travel over NCCL") {
  std::size_t turn = 0;
  topsum::coded const small{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  for (int ranks = 1; ranks <= 8; ++ranks) {
    if (test::skips_ranks(ranks)) continue;
    test::expect_none(topsum::laws::exchange<float>(topsum::ok_topk{}, ranks, 97 + turn++, 2, test::over_nccl{}, small,
                                                    topsum::top_k{.k = 7}));
  }
}

TEST_CASE("ranks as threads may share a device") {
  check(test::over_shared_device{}, topsum::gather_all{}, topsum::ok_topk{}, topsum::interleaved_quota{});
}
