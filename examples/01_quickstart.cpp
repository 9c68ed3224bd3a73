// SPDX-License-Identifier: BSL-1.0
// Four ranks as threads of this process reduce their gradients to the mean, by Ok-Topk at a density of 1 %.

#include <topsum/topsum.hpp>

#include <cstdio>
#include <vector>

namespace {

// Stands for a backward pass: this rank's gradient in this step. A few parameters matter, the rest is small.
void compute_gradient(std::vector<float>& gradient, int rank, unsigned step) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    auto const noise = static_cast<float>((i * 7919 + step * 104729 + static_cast<unsigned>(rank) * 31) % 1000) / 1e6F;
    gradient[i] = i % 500 == 0 ? 1.0F + noise : noise;
  }
}

void work(topsum::local::communicator ranks) {
  // What the gradient consists of. A plain number of values does too.
  topsum::layout const shapes{{"fc1.weight", {512, 784}}, {"fc1.bias", {512}}};

  // Collective, once: checks everything, agrees with all ranks, allocates all memory.
  auto reduce = topsum::plan_allreduce<float>(ranks, shapes,                   //
                                              topsum::top_k{.density = 0.01},  // what to select
                                              topsum::error_feedback{},        // what to do with the rest
                                              topsum::ok_topk{});              // how messages travel

  std::vector<float> gradient(shapes.size());
  for (unsigned step = 0; step < 3; ++step) {
    compute_gradient(gradient, ranks.rank(), step);

    topsum::report const report = reduce(gradient);  // collective; in place: now the mean, the same on every rank

    if (ranks.rank() == 0) {
      std::printf("step %u: %zu of %zu values travel, gradient[500] = %.3f, at most 8 %% of dense bytes: %s\n", step,
                  report.selected, report.n, static_cast<double>(gradient[500]),
                  report.share_of_dense() < 0.08 ? "yes" : "no");
    }
  }
}

}  // namespace

int main() { topsum::local::run(4, work); }
