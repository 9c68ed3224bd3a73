// SPDX-License-Identifier: BSL-1.0
// Calls that cannot work: wrong sizes, another order, ranks that throw, leave, or never call.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using comm_t = topsum::local::communicator;
using std::chrono::milliseconds;

constexpr std::size_t n = 101;
topsum::top_k const rule{.density = 0.1};

void expect(bool held, std::string const& sentence) {
  if (!held) throw std::logic_error{sentence};
}

std::vector<float> ones() { return std::vector<float>(n, 1.0F); }

// Steps that all ranks must survive: the same as of a new plan, if nothing was ever applied or kept.
template <class Plan>
void expect_alive(Plan& plan) {
  auto x = ones();
  auto const e = test::ending_of([&] { plan(std::span<float>{x}); });
  expect(e.code == errc::none, "the next good step works, but: " + e.what);
}

}  // namespace

TEST_CASE("a gradient of another size on one rank is an error on every rank, and the next good step works") {
  for (std::size_t const wrong : {std::size_t{0}, n - 1, n + 1}) {
    auto const all = test::endings(3, [&](comm_t& comm) {
      auto sparse = plan_allreduce<float>(comm, n, rule);
      auto dense = plan_allreduce<float>(comm, n, topsum::dense{});
      for (int round = 0; round < 2; ++round) {
        std::vector<float> x(comm.rank() == 1 ? wrong : n);
        for (auto const& e : {test::ending_of([&] { sparse(std::span<float>{x}); }),
                              test::ending_of([&] { dense(std::span<float>{x}); }),
                              test::ending_of([&] { static_cast<void>(sparse.sparse(x)); })}) {
          expect(e.code == errc::wrong_size && e.rank == 1, e.what);
          expect(
              e.says("on rank 1: passed " + std::to_string(wrong) + " values where the layout's tensors add up to 101"),
              e.what);
        }
        expect(sparse.step() == static_cast<std::uint64_t>(round), "failed steps do not count");
        expect_alive(sparse);
        expect_alive(dense);
      }
    });
    for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
  }
}

TEST_CASE("a result of another size on one rank is an error on every rank") {
  auto const all = test::endings(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, rule);
    auto const x = ones();
    std::vector<float> y(comm.rank() == 0 ? 3 : n);
    auto const e = test::ending_of([&] { plan(std::span<float const>{x}, std::span<float>{y}); });
    expect(e.code == errc::wrong_size && e.rank == 0 && e.says("passed 3 values"), e.what);
    expect_alive(plan);
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

TEST_CASE("plans called in another order on one rank are a mismatch on every rank, and the plans go on") {
  auto const all = test::endings(3, [](comm_t& comm) {
    auto one = plan_allreduce<float>(comm, n, rule);
    auto two = plan_allreduce<float>(comm, n, rule, topsum::gather_all{});
    auto x = ones();
    auto const e = test::ending_of([&] { comm.rank() == 2 ? two(std::span<float>{x}) : one(std::span<float>{x}); });
    expect(e.code == errc::mismatch && e.rank == 2 && e.says("on rank 2: runs another plan than rank 0"), e.what);
    expect_alive(one);
    expect_alive(two);
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

TEST_CASE("a rank at another step of the plan is a mismatch of steps on every rank") {
  auto const all = test::endings(3, [](comm_t& comm) {
    topsum::channel<topsum::host, comm_t> talk{topsum::host{}, comm};
    topsum::layout const shapes{n};
    talk.begin(7, comm.rank() == 1 ? 1 : 0, shapes);
    talk.open();
  });
  for (auto const& e : all) {
    CHECK(e.code == errc::mismatch);
    CHECK(e.rank == 1);
    CHECK_MESSAGE(e.says("on rank 1: is at step 1 of the plan where rank 0 is at step 0"), e.what);
  }
}

TEST_CASE("a call after a fault of the transport says that the plan is broken") {
  // Rank 2 is there for the plan and the first step only.
  for (bool const throws : {false, true}) {
    auto const all = test::endings(4, [&](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, n, rule);
      expect_alive(plan);
      if (comm.rank() == 2) {
        if (throws) throw std::runtime_error{"out of luck"};
        return;
      }
      auto x = ones();
      auto const first = test::ending_of([&] { plan(std::span<float>{x}); });
      expect(first.code == errc::transport, "a rank left, but: " + first.what);
      for (int again = 0; again < 2; ++again) {
        auto const next = test::ending_of([&] { plan(std::span<float>{x}); });
        expect(next.code == errc::broken_plan, "the plan is broken, but: " + next.what);
        expect(next.says("make a new plan"), next.what);
      }
      expect(plan.step() == 1, "failed steps do not count");
    });
    for (std::size_t r = 0; r < 4; ++r) {
      if (r == 2 && throws) {
        CHECK(all[r].what == "out of luck");
      } else {
        CHECK_MESSAGE((all[r].code == errc::none && all[r].rank == -1), all[r].what);
      }
    }
  }
}

TEST_CASE("a rank that passes a wrong size while another has left has a broken plan too") {
  auto const all = test::endings(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, rule);
    if (comm.rank() == 2) return;
    std::vector<float> x(3);
    auto const first = test::ending_of([&] { plan(std::span<float>{x}); });
    expect(first.code == errc::transport, "a rank left, but: " + first.what);
    auto const next = test::ending_of([&] { plan(std::span<float>{x}); });
    expect(next.code == errc::broken_plan, "the plan is broken, but: " + next.what);
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

TEST_CASE("a rank that never calls is a timeout on the others, and then their plans are broken") {
  auto const all = test::endings(
      3,
      [](comm_t& comm) {
        auto plan = plan_allreduce<float>(comm, n, rule);
        auto x = ones();
        if (comm.rank() == 1) {
          std::this_thread::sleep_for(milliseconds{1500});
          return;
        }
        auto const first = test::ending_of([&] { plan(std::span<float>{x}); });
        expect(first.code == errc::timeout || first.code == errc::transport, first.what);
        auto const next = test::ending_of([&] { plan(std::span<float>{x}); });
        expect(next.code == errc::broken_plan, "the plan is broken, but: " + next.what);
        if (first.code == errc::timeout) throw topsum::error{errc::timeout, first.what};
      },
      milliseconds{250});
  CHECK((all[0].code == errc::timeout || all[2].code == errc::timeout));
  CHECK(all[1].code == errc::none);
}

TEST_CASE("a rank that never makes the plan is a timeout on the others") {
  auto const all = test::endings(
      2,
      [](comm_t& comm) {
        if (comm.rank() == 1) {
          std::this_thread::sleep_for(milliseconds{1000});
        } else {
          static_cast<void>(plan_allreduce<float>(comm, n, rule));
        }
      },
      milliseconds{200});
  CHECK(all[0].code == errc::timeout);
  CHECK(all[0].says("rank 1"));
}

namespace {

// A policy of a user that throws on one rank in one step.
struct moody {
  using stage_tag = topsum::rule_tag;
  static constexpr std::string_view name = "moody";
  static constexpr bool fixed_count = true;
  int* calls = nullptr;
  bool knows = false;  // whether it throws an error of the library

  template <class B, class R>
  using state = topsum::top_k::state<B, R>;

  void validate() const {}
  [[nodiscard]] std::size_t count(std::size_t size) const { return topsum::top_k{.k = 3}.count(size); }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return count(size); }
  template <class B, class Source, class State, class R, class I>
  void select(B& backend, Source const& from, std::span<topsum::piece const> pieces, std::uint64_t step,
              State const& before, State& after, topsum::entries_view<B, R, I> out) const {
    if (calls != nullptr && ++*calls == 2) {
      if (knows) throw topsum::error{errc::bad_argument, "moody: not today"};
      throw std::runtime_error{"not today"};
    }
    topsum::top_k{.k = 3}.select(backend, from, pieces, step, before, after, out);
  }
};

}  // namespace

TEST_CASE("a policy that throws on one rank is an error on every rank, not a hang, and the next good step works") {
  for (bool const knows : {false, true}) {
    auto const all = test::endings(3, [&](comm_t& comm) {
      int calls = 0;
      auto plan = plan_allreduce<float>(comm, n, moody{comm.rank() == 1 ? &calls : nullptr, knows},
                                        topsum::error_feedback{.rollback = true});
      for (int step = 0; step < 4; ++step) {
        auto x = ones();
        auto const e = test::ending_of([&] { plan(std::span<float>{x}); });
        if (step != 1) {
          expect(e.code == errc::none && e.rank == -1, "a good step works, but: " + e.what);
        } else if (comm.rank() == 1) {
          expect(e.says("not today"), "the rank's own exception, but: " + e.what);
        } else {
          expect(e.code == (knows ? errc::bad_argument : errc::stage_failed) && e.rank == 1,
                 "an error about rank 1, but: " + e.what);
        }
      }
      expect(plan.step() == 3, "failed steps do not count");
    });
    for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
  }
}

TEST_CASE("a plan can be moved, and goes on") {
  auto const all = test::endings(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, rule, topsum::sum{});
    expect_alive(plan);
    auto moved = std::move(plan);
    expect_alive(moved);
    std::vector<decltype(moved)> plans;
    plans.push_back(std::move(moved));
    expect_alive(plans.front());
    expect(plans.front().step() == 3, "the step moves along");
  });
  for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}
