// SPDX-License-Identifier: BSL-1.0
// Uses that somebody will try, and what must not come of them.
#include <topsum/topsum.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using topsum::errc;

TEST_CASE("a bucket larger than all ranks together is one bucket") {
  topsum::local::run(3, [](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(ranks, 100, topsum::top_k{.k = 5}, topsum::sum{},
                                                topsum::ok_topk{.bucket = std::numeric_limits<int>::max()});
    std::vector<float> gradient(100, 0.0F);
    gradient[7] = 1;
    reduce(gradient);
    CHECK(gradient[7] == 3);
  });
}

TEST_CASE("two plans of the same stages, called in another order on one rank, are a mismatch on every rank") {
  topsum::local::run(3, [](topsum::local::communicator ranks) {
    auto a = topsum::plan_allreduce<float>(ranks, 10, topsum::top_k{.k = 2}, topsum::sum{});
    auto b = topsum::plan_allreduce<float>(ranks, 10, topsum::top_k{.k = 2}, topsum::sum{});
    std::vector<float> gradient(10, 1.0F);
    try {
      ranks.rank() == 1 ? b(gradient) : a(gradient);
      CHECK(false);
    } catch (topsum::error const& e) {
      CHECK(e.code() == errc::mismatch);
      CHECK(e.rank() == 1);
    }
    std::vector<float> again(10, 1.0F);
    a(again);
    b(again);
    CHECK(a.step() == 1);
  });
}

TEST_CASE("a rank that makes a plan where others run a step is the same error on both sides") {
  topsum::local::run(3, [](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(ranks, 10, topsum::top_k{.k = 2});
    std::vector<float> gradient(10, 1.0F);
    try {
      if (ranks.rank() == 2) {
        static_cast<void>(topsum::plan_allreduce<float>(ranks, 10, topsum::top_k{.k = 2}));
      } else {
        reduce(gradient);
      }
      CHECK(false);
    } catch (topsum::error const& e) {
      CHECK(e.code() == errc::mismatch);
      CHECK(e.rank() == 2);
    }
  });
}

TEST_CASE("dense with error feedback keeps the residual where a gradient is dropped") {
  topsum::local::run(2, [](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(ranks, 4, topsum::dense{}, topsum::error_feedback{}, topsum::sum{},
                                                topsum::on_nonfinite::drop);
    // The peer's wrong size fails the step; this rank's gradient stays in its residual.
    std::vector<float> failing(ranks.rank() == 0 ? 4 : 3, 5.0F);
    CHECK_THROWS_AS(reduce(failing), topsum::error);
    std::vector<float> gradient(4, 1.0F);
    if (ranks.rank() == 0) gradient[2] = std::numeric_limits<float>::quiet_NaN();
    reduce(gradient);
    CHECK(gradient == std::vector<float>{7, 7, 1, 7});
    if (ranks.rank() == 0) CHECK(reduce.residual()[2] == 5);
    std::vector<float> next(4, 0.0F);
    reduce(next);
    CHECK(next == std::vector<float>{0, 0, 5, 0});
  });
}

TEST_CASE("reused_threshold aims at no more than may travel") {
  topsum::reused_threshold const rule{.k = 100, .at_most = 10};
  CHECK(rule.count(1000) == 10);
  CHECK(rule.capacity(1000) == 10);
  CHECK(rule.count(4) == 4);
}

TEST_CASE("k = 0 with an unlimited region capacity selects nothing") {
  topsum::local::run(2, [](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(
        ranks, 10, topsum::top_k{.k = 0}, topsum::ok_topk{.region_capacity = std::numeric_limits<double>::infinity()});
    std::vector<float> gradient(10, 1.0F);
    CHECK(reduce(gradient).result == 0);
    CHECK(gradient == std::vector<float>(10, 0.0F));
  });
}

TEST_CASE("numbers in messages are those that were written") {
  try {
    topsum::ok_topk{.balance_above = 0.9999}.validate();
    CHECK(false);
  } catch (topsum::error const& e) {
    CHECK(std::string{e.what()}.find(".balance_above = 0.9999") != std::string::npos);
  }
}
