// SPDX-License-Identifier: BSL-1.0
// Composed policies in whole plans: ranks that see different gradients still take the same turns.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <topsum/testing/exchange_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

topsum::layout const tensors{{"conv", {6, 5, 3, 3}}, {"bias", {6}}, {"linear", {9, 50}}};

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

// A policy that writes down whether its selection was exact, and what tau was.
struct watched : topsum::adtopk {
  std::vector<std::vector<std::uint64_t>>* seen = nullptr;
  int rank = 0;
  template <class B, class R, class I>
  void observe(B& backend, topsum::entries_view<B, R, I> result, topsum::partition const& pieces, std::uint64_t step,
               state<B, R>& after) const {
    bool const exact = after.exact;
    adtopk::observe(backend, result, pieces, step, after);
    (*seen)[static_cast<std::size_t>(rank)].push_back(after.tau * 4 + after.since * 1000 + (exact ? 1 : 0));
  }
};

}  // namespace

TEST_CASE("adtopk: ranks with very different gradients keep the same tau and the same turns") {
  constexpr int ranks = 4;
  std::vector<std::vector<std::uint64_t>> seen(ranks);
  topsum::local::run(ranks, [&](topsum::local::communicator comm) {
    watched policy{{.density = 0.05, .warm_up = 3, .period = 3}, &seen, comm.rank()};
    auto plan = topsum::plan_allreduce<float>(comm, tensors, policy, topsum::gather_all{});
    for (std::uint64_t step = 0; step < 60; ++step) {
      auto gradient = topsum::laws::make_input<float>(topsum::laws::input::laplace, tensors.size(),
                                                      100 * step + static_cast<std::uint64_t>(comm.rank()));
      // Rank r's gradients grow and shrink in a rhythm of its own.
      float const scale = std::pow(10.0F, static_cast<float>(comm.rank())) *
                          (1 + std::abs(
                                   std::sin(static_cast<float>(step * (1 + static_cast<std::uint64_t>(comm.rank()))))));
      for (float& x : gradient) x *= scale;
      plan(gradient);
    }
  });
  std::set<std::uint64_t> different(seen[0].begin(), seen[0].end());
  CHECK(seen[0].size() == 60);
  CHECK(different.size() > 5);
  for (int r = 1; r < ranks; ++r) CHECK(seen[static_cast<std::size_t>(r)] == seen[0]);
}

TEST_CASE("exchanges keep their laws under composed policies, saved and loaded in the middle") {
  for (int const ranks : {1, 3}) {
    topsum::top_k const rule{.density = 0.05};
    topsum::adtopk const scheme{.density = 0.05, .warm_up = 2, .period = 1, .total_steps = 12};
    expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, ranks, 97, 10, scheme));
    expect_none(topsum::laws::exchange<float>(topsum::ok_topk{.boundaries_every = 2, .threshold_every = 3}, ranks, 97,
                                              6, scheme));
    expect_none(topsum::laws::exchange<float>(
        topsum::gather_all{}, ranks, 97, 6,
        topsum::alternate{topsum::reused_threshold{.density = 0.05, .every = 2}, topsum::layer_wise{rule}}));
    expect_none(topsum::laws::exchange<float>(topsum::gather_all{}, ranks, 97, 2,
                                              topsum::exact_budget{topsum::layer_wise{rule}}));
  }
}

TEST_CASE("row_coverage counts the rows that have entries, in the selection and in the result") {
  topsum::local::run(3, [](topsum::local::communicator comm) {
    auto plan = topsum::plan_allreduce<float>(comm, topsum::layout{{"m", {8, 10}}, {"bias", {8}}},
                                              topsum::top_k{.k = 2}, topsum::gather_all{}, topsum::row_coverage{});
    std::vector<float> gradient(88);
    gradient[static_cast<std::size_t>(comm.rank()) * 10] = 5;       // row r
    gradient[static_cast<std::size_t>(comm.rank()) * 10 + 13] = 4;  // row r + 1
    gradient[85] = 1;                                               // no row
    auto const report = plan(gradient);
    CHECK(report.selected_coverage == 2.0 / 8);
    CHECK(report.coverage == 4.0 / 8);
    CHECK(report.to_string().find("rows with entries 50 %, selected 25 %") != std::string::npos);
  });
  topsum::local::run(1, [](topsum::local::communicator comm) {
    std::vector<float> gradient(88, 1);
    auto dense = topsum::plan_allreduce<float>(comm, 88, topsum::dense{}, topsum::row_coverage{});
    CHECK(!dense(gradient).coverage.has_value());
    auto rowless = topsum::plan_allreduce<float>(comm, 88, topsum::row_coverage{.along = topsum::axis::longest});
    CHECK(rowless(gradient).coverage == 1.0);
    auto without = topsum::plan_allreduce<float>(comm, 88);
    CHECK(!without(gradient).coverage.has_value());
  });
}

TEST_CASE("all_dimension reaches every row, which global does not") {
  topsum::local::run(2, [](topsum::local::communicator comm) {
    auto gradient = topsum::laws::make_input<float>(topsum::laws::input::laplace, tensors.size(), 1);
    for (std::size_t i = 0; i < 100; ++i) gradient[i] *= 1000;
    auto rows = topsum::plan_allreduce<float>(comm, tensors, topsum::all_dimension{topsum::top_k{}},
                                              topsum::gather_all{}, topsum::row_coverage{});
    auto whole = topsum::plan_allreduce<float>(comm, tensors, topsum::top_k{}, topsum::gather_all{},
                                               topsum::row_coverage{});
    auto copy = gradient;
    CHECK(rows(gradient).coverage == 1.0);
    CHECK(whole(copy).coverage.value_or(1) < 0.2);
  });
}
