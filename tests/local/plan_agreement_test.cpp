// SPDX-License-Identifier: BSL-1.0
// Making a plan: a mistake on one rank, or ranks that differ, are the same error on every rank, never a hang.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using comm_t = topsum::local::communicator;

// All ranks but `odd` make the usual plan, that one another; all must hear the same, about it.
template <class Usual, class Other>
void expect_everywhere(errc code, std::string const& part, Usual usual, Other other, int ranks = 4, int odd = 2) {
  auto const all = test::endings(ranks, [&](comm_t& comm) {
    if (comm.rank() == odd) {
      other(comm);
    } else {
      usual(comm);
    }
  });
  for (auto const& e : all) {
    CHECK(e.code == code);
    CHECK(e.rank == odd);
    CHECK_MESSAGE(e.says(part), e.what);
    CHECK_MESSAGE(e.says("on rank " + std::to_string(odd)), e.what);
  }
}

template <class T, class... S>
auto make(topsum::layout const& shapes, S const&... stages) {
  return [=](comm_t& comm) { static_cast<void>(plan_allreduce<T>(comm, shapes, stages...)); };
}

auto const usual = make<float>(100, topsum::top_k{.density = 0.1}, topsum::ok_topk{});

}  // namespace

TEST_CASE("another n on one rank is a mismatch on every rank") {
  expect_everywhere(errc::mismatch, "n = 101 where rank 0 has 100", usual,
                    make<float>(101, topsum::top_k{.density = 0.1}, topsum::ok_topk{}));
}

TEST_CASE("another layout of the same n on one rank is a mismatch on every rank") {
  using topsum::layout;
  auto const one = make<float>(layout{{"a", {10, 10}}});
  expect_everywhere(errc::mismatch, "layout", one, make<float>(layout{{"b", {10, 10}}}));
  expect_everywhere(errc::mismatch, "layout", one, make<float>(layout{{"a", {100}}}));
  expect_everywhere(errc::mismatch, "layout", one, make<float>(layout{{"a", {50}}, {"a", {50}}}));
}

TEST_CASE("another density or k on one rank is a mismatch on every rank") {
  expect_everywhere(errc::mismatch, "k (entries that may travel, from density or count) = 20 where rank 0 has 10",
                    usual, make<float>(100, topsum::top_k{.density = 0.2}, topsum::ok_topk{}));
  expect_everywhere(errc::mismatch, "other stages or parameters", usual,
                    make<float>(100, topsum::top_k{.k = 10}, topsum::ok_topk{}));
  expect_everywhere(errc::mismatch, "k (", usual, make<float>(100, topsum::top_k{.k = 0}, topsum::ok_topk{}));
}

TEST_CASE("another value or index type on one rank is a mismatch on every rank") {
  expect_everywhere(errc::mismatch, "value or index type", usual,
                    make<double>(100, topsum::top_k{.density = 0.1}, topsum::ok_topk{}));
  expect_everywhere(errc::mismatch, "value or index type", usual,
                    make<float>(100, topsum::top_k{.density = 0.1}, topsum::ok_topk{}, topsum::index<std::uint64_t>{}));
}

TEST_CASE("another stage or parameter on one rank is a mismatch on every rank") {
  topsum::top_k const rule{.density = 0.1};
  std::string const part = "other stages or parameters than rank 0";
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::gather_all{}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::dense{}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, topsum::reused_threshold{.density = 0.1}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, topsum::layer_wise{rule}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::ok_topk{.bucket = 3}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::ok_topk{.balance_above = 3}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::sum{}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::no_residual{}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::error_feedback{.decay = 0.9}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::error_feedback{.rollback = true}));
  expect_everywhere(errc::mismatch, part, usual, make<float>(100, rule, topsum::on_nonfinite::drop));
}

TEST_CASE("the first rank that differs is named, for any number of ranks") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    expect_everywhere(errc::mismatch, "n = 7", usual, make<float>(7), ranks, ranks - 1);
  }
}

TEST_CASE("a bad parameter on one rank is that rank's sentence on every rank") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  double const infinity = std::numeric_limits<double>::infinity();
  for (double const density : {0.0, -0.1, 1.5, nan, infinity, -infinity}) {
    expect_everywhere(errc::bad_argument, "top_k: .density = ", usual,
                      make<float>(100, topsum::top_k{.density = density}));
    expect_everywhere(errc::bad_argument, "reused_threshold: .density = ", usual,
                      make<float>(100, topsum::layer_wise{topsum::reused_threshold{.density = density}}));
  }
  expect_everywhere(errc::bad_argument, "is outside (0, 1]", usual, make<float>(100, topsum::top_k{.density = nan}));
  expect_everywhere(errc::bad_argument, "reused_threshold: .every = 0", usual,
                    make<float>(100, topsum::reused_threshold{.every = 0}));
  for (double const nudge : {0.5, 0.0, 3.0, nan}) {
    expect_everywhere(errc::bad_argument, "reused_threshold: .nudge", usual,
                      make<float>(100, topsum::reused_threshold{.nudge = nudge}));
  }
  for (double const decay : {-0.5, 1.5, nan}) {
    expect_everywhere(errc::bad_argument, "error_feedback: .decay", usual,
                      make<float>(100, topsum::error_feedback{.decay = decay}));
  }
  expect_everywhere(errc::bad_argument, "ok_topk: .boundaries_every = 0", usual,
                    make<float>(100, topsum::ok_topk{.boundaries_every = 0}));
  expect_everywhere(errc::bad_argument, "ok_topk: .threshold_every = 0", usual,
                    make<float>(100, topsum::ok_topk{.threshold_every = 0}));
  expect_everywhere(errc::bad_argument, "ok_topk: .bucket = 0", usual, make<float>(100, topsum::ok_topk{.bucket = 0}));
  expect_everywhere(errc::bad_argument, "ok_topk: .bucket = -1", usual,
                    make<float>(100, topsum::ok_topk{.bucket = -1}));
  for (double const bad : {0.5, nan, -infinity}) {
    expect_everywhere(errc::bad_argument, "ok_topk: .balance_above", usual,
                      make<float>(100, topsum::ok_topk{.balance_above = bad}));
    expect_everywhere(errc::bad_argument, "ok_topk: .region_capacity", usual,
                      make<float>(100, topsum::ok_topk{.region_capacity = bad}));
  }
}

TEST_CASE("bad parameters on every rank are errors too, and of the first rank") {
  for (int const ranks : {1, 3}) {
    for (auto const& e : test::endings(ranks, make<float>(100, topsum::top_k{.density = 2}))) {
      CHECK(e.code == errc::bad_argument);
      CHECK(e.rank == 0);
    }
  }
}

TEST_CASE("a layout that cannot be on one rank is a bad argument on every rank") {
  using topsum::layout;
  auto const largest = std::numeric_limits<std::int64_t>::max();
  expect_everywhere(errc::bad_argument, "tensor \"w\" has an extent that is negative", usual,
                    make<float>(layout{{"w", {10, -10}}}));
  expect_everywhere(errc::bad_argument, "negative or beyond 63 bits", usual,
                    make<float>(layout{{"w", {~std::uint64_t{0}}}}));
  expect_everywhere(errc::bad_argument, "extents of tensor \"w\" overflow 63 bits", usual,
                    make<float>(layout{{"w", {largest, 2}}}));
  expect_everywhere(errc::bad_argument, "overflow", usual,
                    make<float>(layout{{"w", {std::int64_t{1} << 32, std::int64_t{1} << 32}}}));
  expect_everywhere(errc::bad_argument, "add up to more than 63 bits, at tensor \"c\"", usual,
                    make<float>(layout{{"a", {1}}, {"b", {largest - 1}}, {"c", {1}}}));
  expect_everywhere(errc::bad_argument, "negative", usual, make<float>(layout{-1}));
}

TEST_CASE("an n beyond 32-bit indices is refused with the line to write, before anything is allocated") {
  auto const four_billion = std::uint64_t{1} << 32;
  expect_everywhere(errc::bad_argument,
                    "does not fit 32-bit indices; pass topsum::index<std::uint64_t>{} to plan_allreduce", usual,
                    make<float>(four_billion, topsum::top_k{.k = 1}));
  expect_everywhere(errc::bad_argument, "n = 4294967296", usual, make<float>(four_billion, topsum::dense{}));
  for (auto const& e : test::endings(2, make<float>(topsum::layout{{"w", {65536, 65536}}})))
    CHECK(e.code == errc::bad_argument);
}

TEST_CASE("memory that one rank cannot have is an error on every rank") {
  // 2^61 values: no machine has the memory, 64-bit indices fit.
  auto const all = test::endings(
      3, make<float>(std::uint64_t{1} << 61, topsum::top_k{.k = 1}, topsum::index<std::uint64_t>{}));
  for (auto const& e : all) {
    CHECK(e.code == errc::out_of_memory);
    CHECK(e.says("2305843009213693952 values"));
  }
}

namespace {

// A rule of a user whose validate throws whatever it likes.
struct nervous {
  using stage_tag = topsum::rule_tag;
  static constexpr std::string_view name = "nervous";
  static constexpr bool fixed_count = true;
  bool throws = false;
  template <class B, class R>
  using state = topsum::top_k::state<B, R>;
  void validate() const {
    if (throws) throw std::length_error{"nerves"};
  }
  [[nodiscard]] std::size_t count(std::size_t size) const { return size; }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return size; }
  template <class B, class Source, class State, class R, class I>
  void select(B& backend, Source const& from, std::span<topsum::piece const> pieces, std::uint64_t, State const&,
              State& after, topsum::entries_view<B, R, I> out) const {
    backend.select_top_k(from, pieces, out, after.thresholds.view());
  }
};

}  // namespace

TEST_CASE("what a stage throws while a plan is made is told on every rank") {
  expect_everywhere(errc::stage_failed, "a stage threw: nerves", make<float>(100, nervous{}),
                    make<float>(100, nervous{true}));
}

TEST_CASE("a plan that failed to be made leaves its transport usable") {
  auto const all = test::endings(3, [](comm_t& comm) {
    auto const first = test::ending_of([&] { make<float>(comm.rank() == 1 ? 5 : 6)(comm); });
    if (first.code != errc::mismatch) throw topsum::error{errc::bad_argument, "no mismatch"};
    auto plan = plan_allreduce<float>(comm, 6, topsum::top_k{.k = 6}, topsum::sum{});
    std::vector<float> x(6, 1.0F);
    plan(std::span<float>{x});
    if (x != std::vector<float>(6, 3.0F)) throw topsum::error{errc::bad_argument, "wrong result"};
  });
  for (auto const& e : all) CHECK_MESSAGE(e.code == errc::none, e.what);
}

TEST_CASE("a rank that runs a step where others make a plan is a mismatch on every rank") {
  auto const all = test::endings(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 10);
    std::vector<float> x(10, 1.0F);
    if (comm.rank() == 1) {
      plan(std::span<float>{x});
    } else {
      usual(comm);
    }
  });
  for (auto const& e : all) {
    CHECK(e.code == errc::mismatch);
    CHECK_MESSAGE(e.says("in the same order"), e.what);
  }
}
