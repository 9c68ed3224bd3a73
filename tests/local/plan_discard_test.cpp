// SPDX-License-Identifier: BSL-1.0
// Undoing a step: after discard() everything is as it was before the last completed call.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/archetype_backend.hpp"
#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using comm_t = topsum::local::communicator;

constexpr std::size_t n = 203;
topsum::top_k const exact{.density = 0.1};
topsum::reused_threshold const reused{.density = 0.1, .every = 3};
topsum::ok_topk const lively{.boundaries_every = 3, .threshold_every = 4, .balance_above = 1.2};
topsum::error_feedback const undone{.rollback = true};

void expect(bool held, std::string const& sentence) {
  if (!held) throw std::logic_error{sentence};
}

template <class Plan>
std::vector<float> step(Plan& plan, comm_t& comm, std::uint64_t seed) {
  auto& b = plan.backend();
  auto x = topsum::laws::place(
      b, topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike, n, comm.rank(),
                                            comm.size(), seed));
  static_cast<void>(plan(x.view()));
  return topsum::laws::fetch<float>(b, x.view(), n);
}

// Discards every second call and compares with a plan that never made those.
template <class... S>
void check_discard(int ranks, S const&... stages) {
  CAPTURE(ranks);
  auto const all = test::endings(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, stages...);
    auto straight = plan_allreduce<float>(comm, n, stages...);
    for (std::uint64_t s = 0; s < 9; ++s) {
      auto const before = plan.save();
      static_cast<void>(step(plan, comm, 1000 + s));
      plan.discard();
      expect(plan.step() == s, "the step is undone");
      expect(plan.save() == before, "everything is undone");
      auto const again = step(plan, comm, s);
      expect(test::same_bits(again, step(straight, comm, s)), "the plan goes on as if the call had not been");
      expect(plan.save() == straight.save(), "and keeps the same");
    }
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

void check_all(std::vector<test::ending> const& all) {
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

}  // namespace

TEST_CASE("a call that was discarded leaves no trace, for every store that rolls back") {
  topsum::momentum_correction const corrected{.rollback = true};
  topsum::decoupled_momentum const decoupled{.beta = 0.9, .rollback = true};
  for (int const ranks : {1, 2, 3, 4}) {
    check_discard(ranks, reused, topsum::gather_all{}, undone);
    check_discard(ranks, reused, lively, undone);
    check_discard(ranks, exact, lively, corrected);
    check_discard(ranks, reused, topsum::gather_all{}, corrected);
    check_discard(ranks, reused, lively, decoupled);
    check_discard(ranks, topsum::dense{}, corrected);
    check_discard(ranks, topsum::dense{});
    check_discard(ranks, exact, topsum::gather_all{}, topsum::no_residual{});
  }
  check_discard(2, reused, lively, corrected, test::archetype_backend{});
}

TEST_CASE("a loss scaler skips a step that overflowed on one rank: all ranks see NaN, and discard") {
  check_all(test::endings(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, exact, lively, undone, topsum::on_nonfinite::propagate);
    static_cast<void>(step(plan, comm, 0));
    auto const before = plan.save();
    std::vector<float> x(n, 1.0F);
    if (comm.rank() == 1) x[17] = std::numeric_limits<float>::infinity();
    plan(std::span<float>{x});
    bool skip = false;
    for (float const value : x) skip = skip || !topsum::is_finite(value);
    expect(skip, "every rank sees it");
    plan.discard();
    expect(plan.save() == before, "the step is undone");
  }));
}

TEST_CASE("without a copy of the step before there is nothing to restore: an error that says what to write") {
  check_all(test::endings(2, [](comm_t& comm) {
    auto const refused = [&](auto const& store, std::string const& name) {
      auto plan = plan_allreduce<float>(comm, n, exact, store);
      static_cast<void>(step(plan, comm, 0));
      auto const e = test::ending_of([&] { plan.discard(); });
      expect(e.code == errc::bad_argument, e.what);
      expect(e.says("write " + name + "{.rollback = true}"), e.what);
      expect(plan.step() == 1, "nothing happened");
      static_cast<void>(step(plan, comm, 1));
    };
    refused(topsum::error_feedback{}, "error_feedback");
    refused(topsum::momentum_correction{}, "momentum_correction");
    refused(topsum::decoupled_momentum{}, "decoupled_momentum");
  }));
}

TEST_CASE("only the last completed call can be discarded, once, before the next") {
  check_all(test::endings(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, reused, lively, undone);
    auto const refused = [&](std::string const& when) {
      auto const before = plan.save();
      auto const e = test::ending_of([&] { plan.discard(); });
      expect(e.code == errc::bad_argument && e.says("there is no completed call to undo"), when + ": " + e.what);
      expect(plan.save() == before, when + ": nothing happened");
    };
    refused("before the first call");
    static_cast<void>(step(plan, comm, 0));
    static_cast<void>(step(plan, comm, 1));
    plan.discard();
    refused("a second time");
    static_cast<void>(step(plan, comm, 1));
    std::vector<float> bad(n, std::numeric_limits<float>::quiet_NaN());
    auto const failed = test::ending_of([&] { plan(std::span<float>{bad}); });
    expect(failed.code == errc::nonfinite, failed.what);
    refused("after a call that failed");
    static_cast<void>(step(plan, comm, 2));
    plan.load(plan.save());
    refused("after a load");
    static_cast<void>(step(plan, comm, 3));
    auto moved = std::move(plan);
    moved.discard();
    expect(moved.step() == 3, "what can be discarded moves along");
  }));
}

TEST_CASE("a rank that does not discard with the others is a mismatch of steps on every rank, and a load repairs it") {
  check_all(test::endings(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, exact, lively, undone);
    static_cast<void>(step(plan, comm, 0));
    auto const saved = plan.save();
    static_cast<void>(step(plan, comm, 1));
    if (comm.rank() != 1) plan.discard();
    for (int again = 0; again < 2; ++again) {
      auto const e = test::ending_of([&] { static_cast<void>(step(plan, comm, 2)); });
      expect(e.code == errc::mismatch && e.rank == 1, e.what);
      expect(e.says("on rank 1: is at step 2 of the plan where rank 0 is at step 1"), e.what);
    }
    plan.load(saved);
    static_cast<void>(step(plan, comm, 1));
  }));
}
