// SPDX-License-Identifier: BSL-1.0
// An MPI program that has a communicator already lends it to topsum. Start it with mpiexec -n 4.
//
// `02_mpi --mistake` gives rank 1 another number of values: every rank reports it, and none hangs.

#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm workers = MPI_COMM_NULL;  // what your program calls its data-parallel group
  MPI_Comm_dup(MPI_COMM_WORLD, &workers);
  int rank = 0;
  MPI_Comm_rank(workers, &rank);

  int exit_code = 0;
  try {
    // topsum's messages travel on a duplicate and never meet yours.
    auto const comm = topsum::mpi::communicator::duplicate(workers);

    bool const mistake = argc > 1 && std::string_view{argv[1]} == "--mistake";
    std::size_t const n = mistake && rank == 1 ? 1001 : 1000;
    auto reduce = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 10}, topsum::sum{}, topsum::ok_topk{});

    std::vector<float> gradient(n, 0.001F);
    for (std::size_t i = 0; i < 10; ++i) gradient[100 * i] = static_cast<float>(i + 1);

    // The entries alone: an optimizer touches only the parameters that change.
    auto const result = reduce.sparse(gradient);
    if (rank == 0) {
      std::printf("%d ranks, %zu entries in the sum\n", comm.size(), result.size());
      for (std::size_t e = 0; e < result.size(); ++e) {
        std::printf("  parameter %3u: %g\n", result.indices[e], static_cast<double>(result.values[e]));
      }
    }
  } catch (topsum::error const& e) {
    // The same on every rank, so that all can stop, or go on, together.
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    exit_code = 1;
  }

  MPI_Comm_free(&workers);
  MPI_Finalize();
  return exit_code;
}
