// SPDX-License-Identifier: BSL-1.0
// Seconds a step of every exchange and codec, on as many ranks as MPI has: one JSON line each, from rank 0.
//
//   mpiexec -n 4 bench/scale [--n 1048576] [--density 0.01] [--steps 4] [--room 16] [--alpha S --beta S --gamma S]
//
// Made for simulated ranks (scripts/bench.sh scale: SimGrid's SMPI), and runs on real ones just as well. Time is MPI's, so
// simulated where ranks are; of the slowest rank, mean over `steps` after one that is not counted. Results are taken as entries; the
// gradient is the same in every step, the residual goes on. Exchanges that would need more than `room` GiB for lists on all
// ranks together are left out: ranks of a simulation share one machine. With rates of the link, `automatic` chooses by them too.

#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

struct settings {
  std::size_t n = std::size_t{1} << 20;
  double density = 0.01;
  int steps = 4;
  double room = 16;
  topsum::exchange_rates rates{};  ///< of the link; all 0 for none
};

settings read(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; i += 2) {
    std::string_view const a = argv[i];
    if (i + 1 < argc && a == "--n") {
      s.n = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (i + 1 < argc && a == "--density") {
      s.density = std::strtod(argv[i + 1], nullptr);
    } else if (i + 1 < argc && a == "--steps") {
      s.steps = std::max(1, std::atoi(argv[i + 1]));
    } else if (i + 1 < argc && a == "--room") {
      s.room = std::strtod(argv[i + 1], nullptr);
    } else if (i + 1 < argc && a == "--alpha") {
      s.rates.alpha = std::strtod(argv[i + 1], nullptr);
    } else if (i + 1 < argc && a == "--beta") {
      s.rates.beta = std::strtod(argv[i + 1], nullptr);
    } else if (i + 1 < argc && a == "--gamma") {
      s.rates.gamma = std::strtod(argv[i + 1], nullptr);
    } else {
      std::fprintf(
          stderr, "usage: bench/scale [--n N] [--density X] [--steps N] [--room GIB] [--alpha S --beta S --gamma S]\n");
      std::exit(2);
    }
  }
  return s;
}

class bench {
 public:
  bench(settings const& chosen, topsum::mpi::communicator comm)
      : chosen_{chosen},
        comm_{std::move(comm)},
        gradient_{topsum::laws::make_input<float>(topsum::laws::input::laplace, chosen.n,
                                                  static_cast<std::uint64_t>(comm_.rank()))} {}

  /// `lists`: entries over k that a rank has room for in the exchange.
  template <class... Stages>
  void time(char const* exchange, char const* codec, double lists, Stages const&... stages) {
    double const gib = lists * chosen_.density * static_cast<double>(chosen_.n) * 8 * comm_.size() / (1U << 30);
    if (gib > chosen_.room) {
      if (comm_.rank() == 0) std::fprintf(stderr, "%s, %s: left out, needs %.0f GiB\n", exchange, codec, gib);
      return;
    }
    auto plan = topsum::plan_allreduce<float>(comm_, chosen_.n, topsum::top_k{.density = chosen_.density}, stages...);
    topsum::report last;
    auto const step = [&] {
      if constexpr (decltype(plan)::is_sparse) {
        last = plan.sparse(gradient_).report;
      } else {
        dense_ = gradient_;
        last = plan(std::span<float>{dense_});
      }
    };
    step();
    MPI_Barrier(MPI_COMM_WORLD);
    double const start = MPI_Wtime();
    double bytes = 0;
    for (int i = 0; i < chosen_.steps; ++i) {
      step();
      bytes += static_cast<double>(last.bytes);
    }
    double mine[] = {(MPI_Wtime() - start) / chosen_.steps, bytes / chosen_.steps};
    double most[2];
    MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (comm_.rank() == 0) {
      std::printf(
          "{\"exchange\": \"%s\", \"chosen\": \"%.*s\", \"codec\": \"%s\", \"ranks\": %d, \"n\": %zu, \"density\": %g, "
          "\"seconds\": %.6g, "
          "\"bytes\": %.6g, \"result\": %zu}\n",
          exchange, static_cast<int>(last.exchange.size()), last.exchange.data(), codec, comm_.size(), chosen_.n,
          chosen_.density, most[0], most[1], last.result);
      std::fflush(stdout);
    }
  }

 private:
  settings chosen_;
  topsum::mpi::communicator comm_;
  std::vector<float> gradient_, dense_;
};

}  // namespace

int main(int argc, char** argv) {
  topsum::mpi::session mpi{argc, argv};
  settings const s = read(argc, argv);
  auto const comm = mpi.world();
  bench b{s, comm};
  double const ranks = comm.size();
  using namespace topsum;
  coded const small{elias_fano{}, as<half>{}};
  b.time("dense", "none", 0, dense{}, no_residual{});
  b.time("gather_all", "raw", 3 * ranks, gather_all{});
  b.time("gather_all", "elias_fano, half", 3 * ranks, gather_all{}, small);
  b.time("recursive_doubling", "raw", 5 * ranks, recursive_doubling{});
  b.time("split_gather", "raw", 4 * ranks, split_gather{});
  b.time("merge_tree", "raw", 20, merge_tree{});
  b.time("spar_reduce_scatter", "raw", 20, spar_reduce_scatter{});
  b.time("interleaved_quota", "raw", 8, interleaved_quota{});
  b.time("interleaved_quota", "elias_fano, half", 10, interleaved_quota{}, small);
  b.time("ok_topk", "raw", 20, ok_topk{});
  b.time("ok_topk", "elias_fano, half", 22, ok_topk{}, small);
  if (s.rates.alpha > 0) b.time("automatic", "raw", 0, automatic{s.rates});
}
