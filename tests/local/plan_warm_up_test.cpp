// SPDX-License-Identifier: BSL-1.0
// A schedule of densities: a plan a phase, each of which takes over what waits.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::errc;
using comm_t = topsum::local::communicator;

constexpr std::size_t n = 4000;
constexpr std::size_t phases = 6;
constexpr std::uint64_t epoch = 3;

std::vector<float> gradient_of(int rank, int ranks, std::uint64_t step) {
  return topsum::laws::make_gradient<float>(topsum::laws::input::small_integers, topsum::laws::spread::alike, n, rank,
                                            ranks, step);
}

template <class... S>
void check_warm_up(int ranks, S const&... stages) {
  CAPTURE(ranks);
  auto const P = static_cast<std::size_t>(ranks);
  topsum::exponential_warm_up const schedule;
  std::vector<std::vector<float>> applied(P, std::vector<float>(n)), left(P);
  std::vector<std::vector<std::size_t>> sent(P);
  auto const all = test::endings(ranks, [&](comm_t& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const of_phase = [&](std::uint64_t phase) {
      return topsum::plan_allreduce<float>(comm, n, topsum::top_k{.density = schedule.density(phase)}, topsum::sum{},
                                           stages...);
    };
    auto plan = of_phase(0);
    for (std::uint64_t step = 0; step < phases * epoch; ++step) {
      if (step != 0 && step % epoch == 0) {
        auto next = of_phase(step / epoch);
        next.load(plan.save(), topsum::restore::residual);
        plan = std::move(next);
      }
      auto x = gradient_of(comm.rank(), ranks, step);
      sent[r].push_back(plan(std::span<float>{x}).selected);
      for (std::size_t i = 0; i < n; ++i) applied[r][i] += x[i];
    }
    CHECK(plan.step() == phases * epoch);
    left[r].assign(plan.residual().begin(), plan.residual().end());
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
  std::vector<float> owed(n), now = applied[0];
  for (std::size_t r = 0; r < P; ++r) {
    CHECK(applied[r] == applied[0]);
    for (std::size_t i = 0; i < n; ++i) now[i] += left[r][i];
    for (std::uint64_t step = 0; step < phases * epoch; ++step) {
      auto const x = gradient_of(static_cast<int>(r), ranks, step);
      for (std::size_t i = 0; i < n; ++i) owed[i] += x[i];
    }
    std::size_t const counts[phases] = {1000, 250, 62, 15, 4, 4};
    for (std::size_t step = 0; step < phases * epoch; ++step) CHECK(sent[r][step] == counts[step / epoch]);
  }
  CHECK(now == owed);
}

}  // namespace

TEST_CASE("over a warm-up counts follow the schedule on every rank, and nothing is lost from phase to phase") {
  for (int const ranks : {1, 2, 3, 4}) {
    check_warm_up(ranks, topsum::gather_all{});
    check_warm_up(ranks, topsum::ok_topk{.boundaries_every = 4, .threshold_every = 4});
  }
}
