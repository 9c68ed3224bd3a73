// SPDX-License-Identifier: BSL-1.0
// How much of the gradients stays behind in residuals under each exchange, on recorded gradients: ranks are threads.
//
//   TOPSUM_GRADIENTS=folder bench/residual_energy
//
// The folder holds `conv.bf16`, `conv.json` and the same of `transformer`: 64 consecutive steps of two workers. Rank r takes worker
// r mod 2, begun 8 (r / 2) steps later and going round, so that more ranks than two have gradients of their own. All run
// `global{top_k}` with error feedback. Printed, means over the last 32 of 64 steps:
//   kept    sum over ranks of |residual|^2 over that of |gradient|^2: what a rank still holds
//   owed    |mean residual|^2 over |mean gradient|^2: by how much the model is behind, what ranks hold against each other left out
//   result  entries applied, over k
//   words   sent by a rank, over k
#include <topsum/topsum.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr std::size_t steps = 64;
constexpr std::size_t workers = 2;

/// [step][worker][parameter], as floats; empty where the file is not.
struct recording {
  explicit recording(std::string const& path) {
    std::ifstream file{path, std::ios::binary};
    std::vector<char> const bytes{std::istreambuf_iterator<char>{file}, {}};
    values.resize(bytes.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const low = static_cast<unsigned char>(bytes[2 * i]);
      auto const high = static_cast<unsigned char>(bytes[2 * i + 1]);
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(high) << 24U | static_cast<std::uint32_t>(low)
                                                                                     << 16U);
    }
    n = values.size() / (steps * workers);
  }
  [[nodiscard]] std::span<float const> gradient(std::size_t step, int rank) const {
    auto const r = static_cast<std::size_t>(rank);
    std::size_t const at = (step + 8 * (r / workers)) % steps;
    return std::span{values}.subspan((at * workers + r % workers) * n, n);
  }
  std::vector<float> values;
  std::size_t n = 0;
};

double energy(std::span<float const> x) {
  double sum = 0;
  for (float const value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

template <class Exchange>
void measure(char const* name, recording const& data, int ranks, double density, Exchange const& exchange) {
  auto const P = static_cast<std::size_t>(ranks);
  std::vector<std::vector<float>> residuals(P);
  std::vector<topsum::report> reports(P);
  std::vector<double> sums(5);
  // A step a time, so that all ranks' residuals can be looked at between.
  topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, data.n, topsum::top_k{.density = density}, exchange);
    auto const r = static_cast<std::size_t>(comm.rank());
    topsum::host backend;
    std::byte const token{};
    std::vector<std::byte> tokens(P);
    auto const barrier = [&] {
      topsum::collective::all_gather(comm, backend, std::span<std::byte const>{&token, 1}, std::span{tokens});
    };
    for (std::size_t step = 0; step < steps; ++step) {
      auto const given = data.gradient(step, comm.rank());
      std::vector<float> gradient(given.begin(), given.end());
      reports[r] = plan(std::span<float>{gradient});
      residuals[r].assign(plan.residual().begin(), plan.residual().end());
      barrier();
      if (comm.rank() == 0 && step >= steps / 2) {
        std::vector<float> mean_residual(data.n);
        std::vector<float> mean_gradient(data.n);
        for (int other = 0; other < ranks; ++other) {
          auto const theirs = data.gradient(step, other);
          auto const& held = residuals[static_cast<std::size_t>(other)];
          sums[0] += energy(held);
          sums[1] += energy(theirs);
          for (std::size_t i = 0; i < data.n; ++i) {
            mean_residual[i] += held[i];
            mean_gradient[i] += theirs[i];
          }
        }
        sums[2] += energy(mean_residual);
        sums[3] += energy(mean_gradient);
        sums[4] += 1;
        auto const k = static_cast<double>(plan.capacity());
        sums.resize(7);
        sums[5] += static_cast<double>(reports[0].result) / k;
        sums[6] += static_cast<double>(reports[0].bytes - reports[0].control_bytes) / 4 / k;
      }
      barrier();
    }
  });
  std::printf("| `%s` | %.1f | %.1f | %.2f | %.1f |\n", name, sums[0] / sums[1], sums[2] / sums[3], sums[5] / sums[4],
              sums[6] / sums[4]);
  std::fflush(stdout);
}

}  // namespace

int main() {
  using namespace topsum;
  char const* const folder = std::getenv("TOPSUM_GRADIENTS");
  for (char const* const kind : {"conv", "transformer"}) {
    recording const data{std::string{folder == nullptr ? "." : folder} + "/" + kind + ".bf16"};
    if (data.n == 0) {
      std::fprintf(stderr, "no recorded gradients of %s: set TOPSUM_GRADIENTS to the folder with %s.bf16\n", kind,
                   kind);
      return 77;
    }
    for (int const ranks : {4, 8}) {
      for (double const density : {0.01, 0.001}) {
        std::printf("\n%s, P = %d, %g %%\n\n| exchange | kept | owed | result | words |\n|---|---|---|---|---|\n", kind,
                    ranks, 100 * density);
        measure("gather_all", data, ranks, density, gather_all{});
        measure("ok_topk", data, ranks, density, ok_topk{});
        measure("ok_topk, exact on every step", data, ranks, density, ok_topk{.threshold_every = 1});
        measure("interleaved_quota", data, ranks, density, interleaved_quota{});
        measure("interleaved_quota, collection", data, ranks, density,
                interleaved_quota{.dropped = interleaved_quota::residual_rule::collection});
        measure("spar_reduce_scatter", data, ranks, density, spar_reduce_scatter{});
        measure("merge_tree", data, ranks, density, merge_tree{});
      }
    }
  }
}
