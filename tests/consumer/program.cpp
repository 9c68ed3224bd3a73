// SPDX-License-Identifier: BSL-1.0
// What a first program looks like: two ranks, threads of this process, reduce one gradient.
#include <cstdlib>
#include <vector>

#include <topsum/topsum.hpp>

int main() {
  bool right[2] = {};
  topsum::local::run(2, [&](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(ranks, 100, topsum::top_k{.k = 1}, topsum::gather_all{}, topsum::sum{});
    std::vector<float> gradient(100);
    gradient[7] = 2.0F;
    reduce(gradient);
    right[ranks.rank()] = gradient[7] == 4.0F;
  });
  return right[0] && right[1] ? EXIT_SUCCESS : EXIT_FAILURE;
}
