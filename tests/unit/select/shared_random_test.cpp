// SPDX-License-Identifier: BSL-1.0
// The shared random draw: the same everywhere, exactly k of each group, in order, and fair.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>
#include <vector>

namespace {

using topsum::piece;
using B = topsum::host;

constexpr std::size_t n = 6000;

std::vector<std::uint32_t> drawn(topsum::shared_random const& rule, std::vector<piece> const& pieces,
                                 std::uint64_t step, std::vector<float> const& x = std::vector<float>(n)) {
  B backend;
  topsum::entries<B, float, std::uint32_t> out{backend, topsum::total_capacity(pieces)};
  topsum::shared_random::state<B, float> none{backend, pieces};
  topsum::nonfinite_record fault;
  topsum::source<B, float, topsum::plain_gradient<float>> const from{x, {}, {}, {}, {&fault, 1}};
  rule.select(backend, from, std::span{pieces}, step, none, none, out.view());
  std::size_t const count = out.view().count[0];
  bool same = count == out.capacity();
  for (std::size_t e = 0; e < count; ++e) same = same && out.view().values[e] == x[out.view().indices[e]];
  CHECK(same);
  return {out.view().indices.begin(), out.view().indices.begin() + static_cast<std::ptrdiff_t>(count)};
}

// Grids with few and many entries for their rows, whole and ragged.
std::vector<piece> grids() {
  std::vector<piece> pieces{{0, 500, 5, 5},
                            {500, 0, 0, 0},
                            {500, 1, 1, 1},
                            {501, 600, 3, 3, {1, 600, 100}},
                            {1101, 640, 4, 4, {1, 640, 50}},
                            {1800, 32 * 9 * 3, 2, 2, {32, 9, 1}},
                            {2700, 20 * 30 * 2, 7, 7, {20, 30, 20}},
                            {4000, 10 * 23, 37, 37, {10, 23, 5}},
                            {4300, 8 * 8 * 4, 64, 64, {8, 8, 8}},
                            {4600, 9 * 7, 9, 9, {9, 7, 1}},
                            {4700, 300, 0, 0, {1, 300, 30}},
                            {5000, 12 * 10 * 5, 13, 13, {12, 10, 10}}};
  for (piece const& p : pieces) REQUIRE(topsum::is_well_formed(p));
  return pieces;
}

}  // namespace

TEST_CASE("exactly k of each group of every grid, indices increasing") {
  auto const pieces = grids();
  for (std::uint64_t step = 0; step < 200; ++step) {
    auto const got = drawn({.seed = 3}, pieces, step);
    bool increasing = true;
    for (std::size_t e = 1; e < got.size(); ++e) increasing = increasing && got[e - 1] < got[e];
    CHECK(increasing);
    for (piece const& p : pieces) {
      std::vector<std::size_t> count(topsum::group_count(p));
      for (std::uint32_t i : got) {
        if (i >= p.begin && i < p.begin + p.size) ++count[topsum::group_of(p, i)];
      }
      for (std::size_t g = 0; g < count.size(); ++g)
        CHECK(count[g] == std::min(p.capacity, topsum::group_at(p, g).size()));
    }
  }
}

TEST_CASE("over the steps every position is drawn about equally often") {
  auto const pieces = grids();
  constexpr std::uint64_t steps = 4000;
  std::vector<std::size_t> hits(n);
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::uint32_t i : drawn({.seed = 8}, pieces, step)) ++hits[i];
  }
  for (piece const& p : pieces) {
    for (std::size_t g = 0; g < topsum::group_count(p); ++g) {
      topsum::group const one = topsum::group_at(p, g);
      double const share = static_cast<double>(std::min(p.capacity, one.size())) / static_cast<double>(one.size());
      double const expected = share * steps;
      double const spread = std::sqrt(expected * (1 - share)) + 1;
      for (std::size_t i = 0; i < one.size(); ++i) {
        // Six deviations; and a fifth, since runs whose lengths differ by one are not quite equal.
        double const off = std::abs(static_cast<double>(hits[one.position(i)]) - expected);
        CHECK_MESSAGE(off < 6 * spread + expected / 5,
                      "position " << one.position(i) << ": " << hits[one.position(i)] << " for " << expected);
      }
    }
  }
}

TEST_CASE("all ranks draw the same positions whatever their values, and others with another step or seed") {
  std::vector<piece> const whole{{0, n, 60, 60}};
  auto const mine = drawn({.seed = 1}, whole, 7, topsum::laws::make_input<float>(topsum::laws::input::laplace, n, 1));
  auto const yours = drawn({.seed = 1}, whole, 7, topsum::laws::make_input<float>(topsum::laws::input::laplace, n, 2));
  CHECK(mine == yours);
  CHECK(mine != drawn({.seed = 1}, whole, 8));
  CHECK(mine != drawn({.seed = 2}, whole, 7));
  // One of each run of 100, whose beginnings turn with the step.
  for (std::size_t e = 1; e < mine.size(); ++e) CHECK(mine[e] - mine[e - 1] < 202);
}

TEST_CASE("the draw is written down: it must not change from release to release") {
  CHECK(drawn({.seed = 42}, {{0, n, 5, 5}}, 0) == std::vector<std::uint32_t>{706, 1689, 3483, 3881, 5644});
}

TEST_CASE("with one support on all ranks, the result of P ranks has k entries, not kP") {
  topsum::local::run(4, [](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, 1000, topsum::shared_random{.k = 50, .seed = 9},
                                              topsum::error_feedback{}, topsum::gather_all{}, topsum::sum{});
    for (int step = 0; step < 3; ++step) {
      std::vector<float> x(1000, static_cast<float>(1 + comm.rank()));
      plan(std::span<float>{x});
      CHECK(std::count(x.begin(), x.end(), 0.0F) == 950);
      if (step == 0) CHECK(*std::max_element(x.begin(), x.end()) == 10.0F);
    }
  });
}
