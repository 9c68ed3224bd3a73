// SPDX-License-Identifier: BSL-1.0
// What the compiler says first when memory and transport of a plan on a device do not fit.
#include <array>
#include <span>
#include <topsum/topsum.hpp>
#include <topsum/transport/nccl.hpp>
#include <vector>

#include "support/device_archetype.hpp"

// A transport of host memory, like MPI's.
struct host_only {
  struct ticket {};
  int rank() const { return 0; }
  int size() const { return 1; }
  ticket start(std::span<topsum::transfer<std::span<std::byte const>> const>,
               std::span<topsum::transfer<std::span<std::byte>> const>) {
    return {};
  }
  void finish(ticket&) {}
};

void train(topsum::nccl::communicator ranks, test::device_archetype device) {
#ifdef CASE_nccl_with_the_host
  // case: nccl_with_the_host
  // expect: topsum: this transport moves device memory .NCCL., and the plan's data are in host memory: pass a CUDA backend
  static_cast<void>(topsum::plan_allreduce<float>(ranks, 100));
#elif defined(CASE_mpi_with_a_device)
  // case: mpi_with_a_device
  // expect: topsum: the transport cannot move the backend's memory: .* device memory travels by topsum::nccl::communicator
  static_cast<void>(topsum::plan_allreduce<float>(host_only{}, 100, device));
#endif
  auto plan = topsum::plan_allreduce<float>(ranks, 100, device);
  std::vector<float> gradient(100);
#ifdef CASE_host_span_in_a_device_plan
  // case: host_span_in_a_device_plan
  // expect: topsum: this plan's gradients are in its backend's memory
  plan(std::span{gradient});
#endif
  plan(topsum::device_span{gradient.data(), gradient.size()});
}
