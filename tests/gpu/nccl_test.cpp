// SPDX-License-Identifier: BSL-1.0
// The real NCCL on one device, which takes one rank: and ranks as threads that share the device.
#include <doctest/doctest.h>

#include <topsum/testing/transport_laws.hpp>

#include "support/device_archetype.hpp"
#include "support/exchange_checks.hpp"

TEST_CASE("the laws of transports hold for one rank over NCCL") {
  topsum::local::run(1, [](topsum::local::communicator& comm) {
    test::expect_none(topsum::laws::transport(test::nccl_seat{comm}.transport()));
  });
}

TEST_CASE("exchanges keep their laws for one rank over NCCL") {
  test::over_nccl const on;
  topsum::top_k const some{.k = 11};
  test::expect_none(topsum::laws::exchange<float>(topsum::dense{}, 1, 1009, 2, on, some));
  test::expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, 1, 1009, 2, on, some));
  test::expect_none(topsum::laws::exchange<float>(topsum::ok_topk{}, 1, 1009, 2, on, some));
  test::expect_none(topsum::laws::exchange<float>(topsum::interleaved_quota{}, 1, 1009, 2, on, some));
}

TEST_CASE("four ranks as threads share the device") {
  test::over_shared_device const on;
  topsum::top_k const some{.k = 11};
  test::expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, 4, 1009, 2, on, some));
  test::expect_none(topsum::laws::exchange<float>(topsum::ok_topk{}, 4, 1009, 2, on, some));
  test::expect_none(topsum::laws::exchange<float>(topsum::interleaved_quota{}, 4, 1009, 2, on, some));
}
