// SPDX-License-Identifier: BSL-1.0
// NaN, infinity and overflow: the policies, and what a failed step leaves behind.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::on_nonfinite;
using topsum::plan_allreduce;
using comm_t = topsum::local::communicator;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int ranks = 4;
constexpr std::size_t n = 211;
topsum::layout const shapes{{"fc.weight", {10, 20}}, {"none", {0}}, {"fc.bias", {11}}};
topsum::ok_topk const lively{.boundaries_every = 2, .threshold_every = 3};
topsum::reused_threshold const reused{.density = 0.1, .every = 3};

std::vector<float> integers(int rank, std::uint64_t step) {
  return topsum::laws::make_gradient<float>(topsum::laws::input::small_integers, topsum::laws::spread::alike, n, rank,
                                            ranks, step);
}

// Fails on the test's thread if any rank threw.
template <class F>
void on_ranks(F f, int count = ranks) {
  for (auto const& e : test::endings(count, f)) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

void expect(bool held, char const* sentence) {
  if (!held) throw std::logic_error{sentence};
}

// Steps through `bad` values at `position` on the ranks that `poisons` names, for one choice of stages.
template <class... S>
void check_error(std::size_t position, std::string const& where, float value, std::vector<int> const& poisons,
                 S const&... stages) {
  auto const all = test::endings(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, stages...);
    auto x = integers(comm.rank(), 0);
    for (int const r : poisons) {
      if (r == comm.rank()) x[position] = value;
    }
    plan(std::span<float>{x});
  });
  for (auto const& e : all) {
    CHECK(e.code == errc::nonfinite);
    CHECK(e.rank == poisons.front());
    CHECK_MESSAGE(e.says("on rank " + std::to_string(poisons.front())), e.what);
    CHECK_MESSAGE(e.says(" at " + where + ", position " + std::to_string(position)), e.what);
  }
}

}  // namespace

TEST_CASE("a value that is not finite is an error on every rank, naming rank, tensor and position") {
  for (float const value : {not_a_number, infinity, -infinity}) {
    for (std::vector<int> const& who : {std::vector<int>{0}, {3}, {1, 2}, {0, 1, 2, 3}}) {
      check_error(0, "fc.weight[0]", value, who, reused, lively);
      check_error(105, "fc.weight[105]", value, who, topsum::top_k{}, topsum::gather_all{});
      check_error(200, "fc.bias[0]", value, who, topsum::dense{});
      check_error(n - 1, "fc.bias[10]", value, who, topsum::layer_wise{topsum::top_k{}}, lively, topsum::no_residual{});
    }
  }
}

TEST_CASE("the first of several positions is named, with their number") {
  auto const all = test::endings(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes);
    auto x = integers(comm.rank(), 0);
    if (comm.rank() == 1) x[7] = x[8] = x[150] = not_a_number;
    plan(std::span<float>{x});
  });
  for (auto const& e : all) CHECK_MESSAGE(e.says("fc.weight[7], position 7; 3 such values"), e.what);
}

TEST_CASE("a failed step keeps its finite gradients in the residuals, and the next good step works") {
  on_ranks([](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, lively, topsum::sum{});
    for (std::uint64_t step = 0; step < 12; ++step) {
      auto x = integers(comm.rank(), step);
      bool const bad = step == 0 || step == 4 || step == 5;
      auto poisoned = x;
      if (bad && comm.rank() == 2) poisoned[33] = not_a_number;
      std::vector<float> const before(plan.residual().begin(), plan.residual().end());
      auto const e = test::ending_of([&] { plan(std::span<float>{poisoned}); });
      expect((e.code == errc::nonfinite) == bad, "the step fails exactly where it must");
      if (!bad) continue;
      std::vector<float> const after(plan.residual().begin(), plan.residual().end());
      for (std::size_t i = 0; i < n; ++i) {
        bool const lost = comm.rank() == 2 && i == 33;
        expect(after[i] == (lost ? before[i] : before[i] + x[i]),
               "finite gradients are in the residual, others are not");
      }
    }
    expect(plan.step() == 9, "failed steps do not count");
  });
}

namespace {

// Steps that fail leave no trace: results and residuals afterwards equal those of a run that never saw them.
template <class X>
void check_rollback(X const& exchange) {
  on_ranks([&](comm_t& comm) {
    topsum::error_feedback const residual{.decay = 0.5, .rollback = true};
    auto seen = plan_allreduce<float>(comm, shapes, reused, exchange, residual);
    auto clean = plan_allreduce<float>(comm, shapes, reused, exchange, topsum::error_feedback{.decay = 0.5});
    for (std::uint64_t step = 0; step < 16; ++step) {
      if (step % 3 != 1) {
        auto bad = integers(comm.rank(), step + 100);
        if (comm.rank() == static_cast<int>(step % ranks)) bad[(step * 31) % n] = infinity;
        std::vector<float> const before(seen.residual().begin(), seen.residual().end());
        auto const count = seen.step();
        auto const e = test::ending_of([&] { static_cast<void>(seen.sparse(bad)); });
        expect(e.code == errc::nonfinite, "the bad step fails");
        std::vector<float> const after(seen.residual().begin(), seen.residual().end());
        expect(test::same_bits(before, after) && seen.step() == count, "no trace in residual and step");
      }
      auto a = integers(comm.rank(), step);
      auto b = a;
      auto const one = seen(std::span<float>{a});
      auto const two = clean(std::span<float>{b});
      expect(test::same_bits(a, b), "the same result as without bad steps");
      expect(one.bytes == two.bytes && one.selected == two.selected && one.result == two.result, "the same report");
      std::vector<float> const r(seen.residual().begin(), seen.residual().end());
      std::vector<float> const s(clean.residual().begin(), clean.residual().end());
      expect(test::same_bits(r, s), "the same residual as without bad steps");
    }
  });
}

}  // namespace

TEST_CASE("with rollback a failed step leaves residual, state and step as they were") {
  check_rollback(lively);
  check_rollback(topsum::gather_all{});
}

TEST_CASE("a sum with the residual that overflows is caught, and the residual stays finite") {
  auto const all = test::endings(2, [](comm_t& comm) {
    // Position 1 never travels: position 0 is larger.
    auto plan = plan_allreduce<float>(comm, 2, topsum::top_k{.k = 1}, topsum::gather_all{}, topsum::sum{});
    float const large = std::numeric_limits<float>::max();
    for (int step = 0; step < 2; ++step) {
      std::vector<float> x{comm.rank() == 0 ? 1.0F : large, comm.rank() == 0 ? 0.0F : large * 0.75F};
      auto const e = test::ending_of([&] { plan(std::span<float>{x}); });
      expect(e.code == (step == 0 ? errc::none : errc::nonfinite), "the second step overflows");
      if (step == 1) {
        expect(e.rank == 1 && e.says("overflowed") && e.says("position 1"), "the overflow is told");
        for (float const r : plan.residual()) expect(std::isfinite(r), "the residual is finite");
      }
    }
    std::vector<float> zero(2);
    plan(std::span<float>{zero});
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

TEST_CASE("an infinity never stays: after it, results are what they would be had it been zero") {
  on_ranks([](comm_t& comm) {
    auto seen = plan_allreduce<float>(comm, shapes, reused, lively, on_nonfinite::drop);
    auto zeroed = plan_allreduce<float>(comm, shapes, reused, lively);
    for (std::uint64_t step = 0; step < 9; ++step) {
      auto a = integers(comm.rank(), step);
      // A dropped element leaves its residual alone and does not travel, whatever the residual holds: the run to compare with
      // has nothing there from the start.
      a[20] = 0;
      auto b = a;
      if (comm.rank() == 1) a[20] = step % 2 == 0 ? infinity : not_a_number;
      auto const one = seen(std::span<float>{a});
      auto const two = zeroed(std::span<float>{b});
      expect(test::same_bits(a, b), "the same result as with zero there");
      expect(one.nonfinite == (comm.rank() == 1 ? 1U : 0U) && two.nonfinite == 0, "the report counts what was dropped");
    }
  });
}

namespace {

template <class X>
void check_propagate(X const& exchange) {
  on_ranks([&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, exchange, on_nonfinite::propagate);
    auto dropping = plan_allreduce<float>(comm, shapes, reused, exchange, on_nonfinite::drop);
    for (std::uint64_t step = 0; step < 7; ++step) {
      auto a = integers(comm.rank(), step);
      if (step % 2 == 0 && comm.rank() == 1) a[3] = a[60] = infinity;
      if (step % 2 == 0 && comm.rank() == 3) a[n - 1] = not_a_number;
      if (step == 4) a[0] = not_a_number;
      auto b = a;
      plan(std::span<float>{a});
      dropping(std::span<float>{b});
      for (std::size_t i = 0; i < n; ++i) {
        // Each rank's first position: in step 4 that is 0 on all of them.
        bool const marked = step == 4 ? i == 0 : step % 2 == 0 && (i == 3 || i == n - 1);
        expect(marked ? std::isnan(a[i]) : a[i] == b[i], "NaN at each rank's first position, else as dropped");
      }
      for (float const r : plan.residual()) expect(std::isfinite(r), "the residual stays finite");
    }
  });
}

}  // namespace

TEST_CASE("propagate puts NaN at each rank's first position, in the dense result, and keeps the residual clean") {
  check_propagate(lively);
  check_propagate(topsum::gather_all{});
}

TEST_CASE("propagate and drop work under dense") {
  on_ranks([](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, topsum::dense{}, topsum::sum{}, on_nonfinite::propagate);
    auto dropping = plan_allreduce<float>(comm, n, topsum::dense{}, topsum::sum{}, on_nonfinite::drop);
    std::vector<float> a(n, 1.0F);
    if (comm.rank() == 2) a[9] = a[10] = not_a_number;
    auto b = a;
    plan(std::span<float>{a});
    auto const report = dropping(std::span<float>{b});
    for (std::size_t i = 0; i < n; ++i) {
      expect(b[i] == (i == 9 || i == 10 ? ranks - 1.0F : static_cast<float>(ranks)), "dropped values count as zero");
      expect(i == 9 ? std::isnan(a[i]) : a[i] == b[i], "NaN at the first position");
    }
    expect(report.nonfinite == (comm.rank() == 2 ? 2U : 0U), "the report counts them");
  });
}

TEST_CASE("propagate shows in the sparse view, in the result's entries or beside them") {
  on_ranks([](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = 5}, lively, on_nonfinite::propagate);
    auto x = integers(comm.rank(), 0);
    if (comm.rank() == 0) x[77] = not_a_number;
    auto const view = plan.sparse(x);
    int nans = 0;
    for (std::size_t e = 0; e < view.size(); ++e) {
      expect(e == 0 || view.indices[e - 1] < view.indices[e], "indices increase");
      if (std::isnan(view.values[e])) {
        ++nans;
        expect(view.indices[e] == 77, "NaN is where it came from");
      }
    }
    expect(nans == 1 && view.size() == view.report.result, "one NaN, counted as an entry");
  });
}
