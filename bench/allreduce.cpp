// SPDX-License-Identifier: BSL-1.0
// A whole step of each exchange, selection and residual included, beside MPI_Allreduce of the dense gradient in the same run.
//
//   mpiexec -n 4 bench/allreduce [--n 10000000] [--density 0.01] [--period 64] [--rounds 3] [--link 1e9] [--json]
//
// A period is 64 steps, so that refreshes of thresholds and boundaries count. With --link, the rate of each rank's link in bits a
// second, `bound` is what no exchange of these bytes can beat there: selection, and the bytes sent over the link. Every period of an exchange is followed by one of
// the baseline, so that both see the same machine; the table shows the median over rounds. Each rank's gradient is fresh in
// every step: three recorded Laplace gradients in turn, copied outside the timed part. `ratio` is time over the baseline's.

#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct settings {
  std::size_t n = 10'000'000;
  double density = 0.01;
  int period = 64;
  int rounds = 3;
  double link = 0;
  bool json = false;
};

struct contestant {
  std::string name;
  std::function<topsum::report(std::vector<float>&)> step;
};

class bench {
 public:
  bench(settings const& chosen, topsum::mpi::communicator comm) : chosen_{chosen}, comm_{std::move(comm)} {
    for (std::uint64_t i = 0; i < 3; ++i) {
      fresh_.push_back(topsum::laws::make_input<float>(topsum::laws::input::laplace, chosen.n,
                                                       100 * i + static_cast<std::uint64_t>(comm_.rank())));
    }
    gradient_ = fresh_[0];
  }

  /// Seconds per step over one period: the slowest rank's.
  double seconds(std::function<void(std::vector<float>&)> const& step) {
    double sum = 0;
    for (int i = 0; i < chosen_.period; ++i) {
      std::copy(fresh_[static_cast<std::size_t>(i % 3)].begin(), fresh_[static_cast<std::size_t>(i % 3)].end(),
                gradient_.begin());
      MPI_Barrier(MPI_COMM_WORLD);
      auto const start = std::chrono::steady_clock::now();
      step(gradient_);
      sum += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    double slowest = 0;
    MPI_Allreduce(&sum, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / chosen_.period;
  }

  void compare(contestant const& one) {
    std::vector<double> theirs;
    std::vector<double> ratios;
    std::vector<double> baselines;
    std::vector<double> parts[3];
    topsum::report last;
    for (int round = 0; round < chosen_.rounds; ++round) {
      double select = 0;
      double exchange = 0;
      double apply = 0;
      double const mine = seconds([&](std::vector<float>& g) {
        last = one.step(g);
        select += last.select_seconds;
        exchange += last.exchange_seconds;
        apply += last.apply_seconds;
      });
      double const baseline = seconds([](std::vector<float>& g) {
        MPI_Allreduce(MPI_IN_PLACE, g.data(), static_cast<int>(g.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      });
      theirs.push_back(mine);
      ratios.push_back(mine / baseline);
      baselines.push_back(baseline);
      parts[0].push_back(select / chosen_.period);
      parts[1].push_back(exchange / chosen_.period);
      parts[2].push_back(apply / chosen_.period);
    }
    if (comm_.rank() != 0) return;
    double const wire = chosen_.link > 0 ? 8 * static_cast<double>(last.bytes) / chosen_.link : 0;
    double const bound = median(parts[0]) + wire;
    if (chosen_.json) {
      std::printf(
          "{\"name\": \"%s\", \"n\": %zu, \"density\": %g, \"ranks\": %d, \"seconds\": %.6g, \"select\": %.6g, "
          "\"exchange\": %.6g, \"apply\": %.6g, \"baseline\": %.6g, \"ratio_to_baseline\": %.4g, \"bound\": %.6g, "
          "\"bytes\": %llu}\n",
          one.name.c_str(), chosen_.n, chosen_.density, comm_.size(), median(theirs), median(parts[0]),
          median(parts[1]), median(parts[2]), median(baselines), median(ratios), bound,
          static_cast<unsigned long long>(last.bytes));
    } else {
      std::printf("%-34s %9.2f %9.2f %9.2f %9.2f %8.3f %9.2f %11llu %8.2f %%\n", one.name.c_str(), 1e3 * median(theirs),
                  1e3 * median(parts[0]), 1e3 * median(parts[1]), 1e3 * median(parts[2]), median(ratios), 1e3 * bound,
                  static_cast<unsigned long long>(last.bytes), 100 * last.share_of_dense());
    }
    std::fflush(stdout);
  }

 private:
  static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
    return x[x.size() / 2];
  }

  settings chosen_;
  topsum::mpi::communicator comm_;
  std::vector<std::vector<float>> fresh_;
  std::vector<float> gradient_;
};

template <class... Stages>
contestant in_place(std::string name, topsum::mpi::communicator const& comm, std::size_t n, Stages const&... stages) {
  auto plan = std::make_shared<decltype(topsum::plan_allreduce<float>(comm, n, stages...))>(
      topsum::plan_allreduce<float>(comm, n, stages...));
  return {std::move(name), [plan](std::vector<float>& g) { return (*plan)(g); }};
}

template <class... Stages>
contestant as_entries(std::string name, topsum::mpi::communicator const& comm, std::size_t n, Stages const&... stages) {
  auto plan = std::make_shared<decltype(topsum::plan_allreduce<float>(comm, n, stages...))>(
      topsum::plan_allreduce<float>(comm, n, stages...));
  return {std::move(name), [plan](std::vector<float>& g) { return plan->sparse(g).report; }};
}

settings read(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    std::string_view const a = argv[i];
    if (a == "--json") {
      s.json = true;
    } else if (i + 1 < argc && a == "--n") {
      s.n = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && a == "--density") {
      s.density = std::strtod(argv[++i], nullptr);
    } else if (i + 1 < argc && a == "--period") {
      s.period = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && a == "--link") {
      s.link = std::strtod(argv[++i], nullptr);
    } else if (i + 1 < argc && a == "--rounds") {
      s.rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: bench/allreduce [--n N] [--density X] [--period N] [--rounds N] [--link BITS] [--json]\n");
      std::exit(2);
    }
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  topsum::mpi::session mpi{argc, argv};
  settings const s = read(argc, argv);
  auto const comm = mpi.world();
  bench b{s, comm};
  if (comm.rank() == 0 && !s.json) {
    std::printf("n = %zu floats, density %g, %d ranks; milliseconds a step, mean over %d steps, median of %d rounds\n",
                s.n, s.density, comm.size(), s.period, s.rounds);
    std::printf("%-34s %9s %9s %9s %9s %8s %9s %11s %10s\n", "", "step", "select", "exchange", "apply", "ratio",
                "bound", "bytes sent", "of dense");
  }
  using namespace topsum;
  top_k const exact{.density = s.density};
  reused_threshold const reused{.density = s.density};
  b.compare(in_place("dense", comm, s.n, dense{}));
  b.compare(in_place("gather_all", comm, s.n, exact, gather_all{}));
  b.compare(in_place("recursive_doubling", comm, s.n, exact, recursive_doubling{}));
  b.compare(in_place("split_gather", comm, s.n, exact, split_gather{}));
  b.compare(in_place("merge_tree", comm, s.n, exact, merge_tree{}));
  b.compare(in_place("spar_reduce_scatter", comm, s.n, exact, spar_reduce_scatter{}));
  b.compare(in_place("interleaved_quota", comm, s.n, exact, interleaved_quota{}));
  b.compare(in_place("ok_topk", comm, s.n, exact, ok_topk{}));
  b.compare(in_place("ok_topk, reused_threshold", comm, s.n, reused, ok_topk{}));
  b.compare(as_entries("interleaved_quota, entries", comm, s.n, exact, interleaved_quota{}));
  b.compare(as_entries("ok_topk, entries", comm, s.n, exact, ok_topk{}));
  coded const short_messages{elias_fano{}, as<half>{}};
  b.compare(as_entries("interleaved_quota, coded, entries", comm, s.n, exact, interleaved_quota{}, short_messages));
  b.compare(as_entries("ok_topk, coded, entries", comm, s.n, exact, ok_topk{}, short_messages));
  b.compare(in_place("automatic", comm, s.n, exact, automatic{}));
}
