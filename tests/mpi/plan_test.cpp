// SPDX-License-Identifier: BSL-1.0
// Whole plans over processes: the same bits as the oracle, which the plans over threads equal too; mistakes told on every rank.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <topsum/testing/exchange_laws.hpp>
#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>
#include <vector>

#include "support/oracle.hpp"
#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using topsum::laws::input;
using topsum::laws::make_gradient;
using topsum::laws::spread;
using topsum::mpi::communicator;

communicator world() { return communicator::duplicate(MPI_COMM_WORLD, {}); }

// Every rank compares its steps with the oracle's; the bits of a native allreduce are the library's own.
template <class T, class Policy, class X>
void check_against_oracle(Policy const& policy, X const& exchange, topsum::layout const& shapes, input kind, spread how,
                          std::uint64_t steps) {
  communicator comm = world();
  int const ranks = comm.size();
  std::size_t const n = shapes.size();
  auto plan = plan_allreduce<T>(comm, shapes, policy, topsum::error_feedback{}, exchange, topsum::sum{});
  using R = topsum::wide_t<T>;
  test::oracle::world<R, Policy> oracle{policy, shapes, ranks};
  std::string first;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<std::vector<R>> gradients;
    for (int r = 0; r < ranks; ++r)
      gradients.push_back(test::oracle::widened(make_gradient<T>(kind, how, n, r, ranks, step)));
    auto mine = make_gradient<T>(kind, how, n, comm.rank(), ranks, step);
    auto const want = oracle.step(exchange, gradients);
    auto const report = plan(std::span<T>{mine});
    std::vector<R> const residual(plan.residual().begin(), plan.residual().end());
    bool const equal = test::same_bits(mine, test::oracle::narrowed<T>(want.sum)) &&
                       residual == oracle.residuals()[static_cast<std::size_t>(comm.rank())] &&
                       report.selected == want.selected[static_cast<std::size_t>(comm.rank())];
    if (!equal && first.empty()) first = "differs in step " + std::to_string(step) + " of " + plan.describe();
  }
  CHECK(first == "");
}

topsum::layout const layers{{"a", {7, 5}}, {"none", {0, 3}}, {"b", {41}}, {"scalar", {}}, {"c", {2, 13}}};

// All ranks must end alike.
void expect_everywhere(test::ending const& e, errc code, int rank, std::string const& part) {
  CHECK(e.code == code);
  CHECK(e.rank == rank);
  CHECK_MESSAGE(e.says(part), e.what);
}

}  // namespace

// Few steps and large k, so that a refresh takes few rounds: processes that share a core take long over each message.
TEST_CASE("ok_topk over processes equals its oracle bit for bit, through refreshes, boundaries and balance") {
  topsum::ok_topk const lively{.boundaries_every = 5, .threshold_every = 7, .bucket = 2, .balance_above = 1.5};
  topsum::global const exact{topsum::top_k{.k = 700}};
  check_against_oracle<float>(exact, lively, 1999, input::laplace, spread::alike, 16);
  check_against_oracle<float>(exact, lively, 1999, input::laplace, spread::disjoint, 8);
  check_against_oracle<float>(exact, lively, 1999, input::small_integers, spread::one_empty, 8);
  check_against_oracle<float>(topsum::global{topsum::reused_threshold{.k = 700, .every = 3}}, lively, 1999,
                              input::laplace, spread::equal, 8);
  check_against_oracle<double>(topsum::layer_wise{topsum::top_k{.density = 0.1}}, topsum::ok_topk{}, layers,
                               input::laplace, spread::alike, 3);
}

TEST_CASE("gather_all over processes equals its oracle bit for bit") {
  for (spread const how : topsum::laws::every_spread) {
    check_against_oracle<float>(topsum::global{topsum::top_k{.density = 0.2}}, topsum::gather_all{}, 97, input::laplace,
                                how, 5);
  }
  check_against_oracle<double>(topsum::layer_wise{topsum::reused_threshold{.density = 0.2, .every = 3}},
                               topsum::gather_all{}, layers, input::negative_only, spread::alike, 8);
}

TEST_CASE("dense over processes equals its oracle where sums are exact") {
  check_against_oracle<float>(topsum::global{topsum::top_k{}}, topsum::dense{}, 97, input::small_integers,
                              spread::alike, 3);
  check_against_oracle<double>(topsum::global{topsum::top_k{}}, topsum::dense{}, layers, input::increasing,
                               spread::one_empty, 3);
}

TEST_CASE_TEMPLATE("16-bit gradients over processes equal the oracle in float, rounded once at the end", T,
                   topsum::half, topsum::bfloat16) {
  topsum::ok_topk const lively{.boundaries_every = 2, .threshold_every = 3};
  topsum::global const exact{topsum::top_k{.k = 70}};
  check_against_oracle<T>(exact, lively, 499, input::laplace, spread::alike, 6);
  check_against_oracle<T>(exact, topsum::gather_all{}, 499, input::laplace, spread::one_empty, 3);
  check_against_oracle<T>(exact, topsum::dense{}, 499, input::small_integers, spread::alike, 2);
}

TEST_CASE("dense over processes sums halves in float") {
  communicator comm = world();
  auto plan = plan_allreduce<topsum::half>(comm, 3, topsum::dense{}, topsum::sum{});
  // In half 2048 + 1 = 2048, and 60000 + 60000 - 60000 is infinite.
  std::vector<topsum::half> x(3, topsum::half{comm.rank() == 0 ? 2048.0F : 1.0F});
  x[1] = topsum::half{comm.rank() % 2 == 0 ? 60000.0F : -60000.0F};
  plan(std::span<topsum::half>{x});
  auto const others = static_cast<float>(comm.size() - 1);
  CHECK(x[0] == topsum::half{2048.0F + others});
  CHECK(x[1] == topsum::half{comm.size() % 2 == 0 ? 0.0F : 60000.0F});
}

TEST_CASE("empty gradients and empty selections are ordinary steps over processes") {
  for (std::size_t const n : {std::size_t{0}, std::size_t{5}}) {
    check_against_oracle<float>(topsum::global{topsum::top_k{.k = n / 5}}, topsum::ok_topk{}, n, input::all_equal,
                                spread::one_empty, 2);
    check_against_oracle<float>(topsum::global{topsum::top_k{.k = 0}}, topsum::gather_all{}, n, input::all_equal,
                                spread::one_empty, 2);
    check_against_oracle<float>(topsum::global{topsum::top_k{}}, topsum::dense{}, n, input::all_equal,
                                spread::one_empty, 2);
  }
}

TEST_CASE("ranks that differ are a mismatch on every process, and the next plan works") {
  communicator comm = world();
  if (comm.size() == 1) return;
  int const odd = comm.size() - 1;
  bool const mine = comm.rank() == odd;
  topsum::top_k const rule{.density = 0.1};
  expect_everywhere(test::ending_of([&] { static_cast<void>(plan_allreduce<float>(comm, mine ? 101 : 100)); }),
                    errc::mismatch, odd, "n = 101 where rank 0 has 100");
  expect_everywhere(test::ending_of([&] {
                      static_cast<void>(plan_allreduce<float>(comm, 100, topsum::top_k{.density = mine ? 0.2 : 0.1}));
                    }),
                    errc::mismatch, odd, "from density or count) = 20 where rank 0 has 10");
  expect_everywhere(test::ending_of([&] {
                      if (mine) {
                        static_cast<void>(plan_allreduce<double>(comm, 100, rule));
                      } else {
                        static_cast<void>(plan_allreduce<float>(comm, 100, rule));
                      }
                    }),
                    errc::mismatch, odd, "value or index type");
  expect_everywhere(test::ending_of([&] {
                      if (mine) {
                        static_cast<void>(plan_allreduce<float>(comm, 100, rule, topsum::gather_all{}));
                      } else {
                        static_cast<void>(plan_allreduce<float>(comm, 100, rule));
                      }
                    }),
                    errc::mismatch, odd, "other stages or parameters");
  expect_everywhere(test::ending_of([&] {
                      static_cast<void>(plan_allreduce<float>(comm, 100, topsum::top_k{.density = mine ? 1.5 : 0.1}));
                    }),
                    errc::bad_argument, odd, "top_k: .density = 1.5");
  auto plan = plan_allreduce<float>(comm, 100, rule, topsum::sum{});
  std::vector<float> x(100, 1.0F);
  plan(std::span<float>{x});
  CHECK(x[0] == static_cast<float>(comm.size()));
}

TEST_CASE("a step that cannot work is the same error on every process, and the next one works") {
  communicator comm = world();
  int const odd = comm.size() - 1;
  bool const mine = comm.rank() == odd;
  auto plan = plan_allreduce<float>(comm, 100, topsum::top_k{.k = 10}, topsum::error_feedback{.rollback = true},
                                    topsum::sum{});
  std::vector<float> short_one(mine ? 3 : 100);
  expect_everywhere(test::ending_of([&] { plan(std::span<float>{short_one}); }), errc::wrong_size, odd,
                    "passed 3 values");
  std::vector<float> bad(100, 1.0F);
  if (mine) bad[42] = std::numeric_limits<float>::quiet_NaN();
  expect_everywhere(test::ending_of([&] { plan(std::span<float>{bad}); }), errc::nonfinite, odd, "position 42");
  auto other = plan_allreduce<float>(comm, 100, topsum::gather_all{});
  std::vector<float> x(100, 1.0F);
  if (comm.size() > 1) {
    expect_everywhere(test::ending_of([&] { mine ? other(std::span<float>{x}) : plan(std::span<float>{x}); }),
                      errc::mismatch, odd, "another plan");
  }
  plan(std::span<float>{x});
  CHECK(x[0] == static_cast<float>(comm.size()));
  CHECK(x[10] == 0);
  CHECK(plan.step() == 1);
}

TEST_CASE("the counts of a plan over processes are the ring's, as over threads") {
  communicator comm = world();
  auto const peers = static_cast<std::uint64_t>(comm.size()) - 1;
  auto plan = plan_allreduce<float>(comm, 500, topsum::top_k{.k = 60}, topsum::gather_all{});
  auto x = make_gradient<float>(input::laplace, spread::alike, 500, comm.rank(), comm.size(), 0);
  auto const done = plan(std::span<float>{x});
  CHECK(done.bytes == 4 * (2 * 60 + 12) * peers);
  CHECK(done.control_bytes == 48 * peers);
  auto dense = plan_allreduce<float>(comm, 500, topsum::dense{});
  auto const whole = dense(std::span<float>{x});
  CHECK(whole.bytes - whole.control_bytes <= 4 * 2 * 500);
}
