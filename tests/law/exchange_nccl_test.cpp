// SPDX-License-Identifier: BSL-1.0
// Laws of exchanges over NCCL, on a backend in a device's memory: with a stand-in for NCCL, so that no GPU is needed.
#include <doctest/doctest.h>

#include "support/exchange_checks.hpp"
#include "support/nccl_stand_in.hpp"

namespace {

struct over_nccl {
  using stage_tag = topsum::backend_tag;
  [[nodiscard]] test::nccl_seat sit(topsum::local::communicator& comm) const { return test::nccl_seat{comm}; }
};
over_nccl const on;

}  // namespace

TEST_CASE("exchanges keep their laws over NCCL") {
  std::size_t turn = 0;
  auto const check = [&](auto const& exchange) { test::check_exchange<float>(exchange, 2, turn++, on); };
  check(topsum::dense{});
  check(topsum::gather_all{});
  check(topsum::ok_topk{});
  check(topsum::interleaved_quota{});
  check(topsum::recursive_doubling{});
  check(topsum::split_gather{});
  check(topsum::merge_tree{});
  check(topsum::spar_reduce_scatter{});
  check(topsum::aligned{topsum::leader{}});
}
