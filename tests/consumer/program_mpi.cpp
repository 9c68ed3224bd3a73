// SPDX-License-Identifier: BSL-1.0
// The same with processes: every rank contributes 1 to one value of the gradient.
#include <cstdlib>
#include <vector>

#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>

int main(int argc, char** argv) {
  topsum::mpi::session mpi{argc, argv};
  auto world = mpi.world();
  auto reduce = topsum::plan_allreduce<float>(world, 100, topsum::top_k{.k = 1}, topsum::gather_all{}, topsum::sum{});
  std::vector<float> gradient(100);
  gradient[7] = 1.0F;
  reduce(gradient);
  return gradient[7] == static_cast<float>(world.size()) ? EXIT_SUCCESS : EXIT_FAILURE;
}
