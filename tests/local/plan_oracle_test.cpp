// SPDX-License-Identifier: BSL-1.0
// Whole plans against slow oracles, bit for bit: results, residuals and counts, over refreshes and between them.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/oracle.hpp"
#include "support/ranks.hpp"

namespace {

using topsum::laws::every_input;
using topsum::laws::every_spread;
using topsum::laws::input;
using topsum::laws::make_gradient;
using topsum::laws::spread;

template <class T>
struct expected {
  test::oracle::outcome<T> outcome;
  std::vector<std::vector<T>> residuals;
};

// What differs first, or nothing.
template <class T, class Policy, class X>
std::string difference(Policy const& policy, X const& exchange, topsum::layout const& shapes, int ranks, input kind,
                       spread how, std::uint64_t steps, std::uint64_t shuffle = 0) {
  std::size_t const n = shapes.size();
  using R = topsum::wide_t<T>;
  std::vector<expected<R>> wanted;
  test::oracle::world<R, Policy> oracle{policy, shapes, ranks};
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<std::vector<R>> gradients;
    for (int r = 0; r < ranks; ++r)
      gradients.push_back(test::oracle::widened(make_gradient<T>(kind, how, n, r, ranks, step)));
    auto outcome = oracle.step(exchange, gradients);
    wanted.push_back({std::move(outcome), oracle.residuals()});
  }
  topsum::local::options options;
  options.shuffle_seed = shuffle;
  auto const found = topsum::local::run(
      ranks,
      [&](topsum::local::communicator& comm) -> std::string {
        auto plan = topsum::plan_allreduce<T>(comm, shapes, policy, topsum::error_feedback{}, exchange, topsum::sum{});
        auto const r = static_cast<std::size_t>(comm.rank());
        std::string first;
        for (std::uint64_t step = 0; step < steps; ++step) {
          auto gradient = make_gradient<T>(kind, how, n, comm.rank(), ranks, step);
          auto const report = plan(std::span<T>{gradient});
          auto const& want = wanted[step];
          std::vector<R> const residual(plan.residual().begin(), plan.residual().end());
          bool const dense = !decltype(plan)::is_sparse;
          bool const equal = test::same_bits(gradient, test::oracle::narrowed<T>(want.outcome.sum)) &&
                             residual == want.residuals[r] && report.selected == want.outcome.selected[r] &&
                             report.sent == want.outcome.sent[r] &&
                             report.result == (dense ? n : want.outcome.entries.size()) && report.step == step;
          if (!equal && first.empty()) first = "rank " + std::to_string(r) + " in step " + std::to_string(step);
        }
        return first;
      },
      options);
  for (auto const& text : found) {
    if (!text.empty()) {
      return text + ": P = " + std::to_string(ranks) + ", " + std::string{to_string(kind)} + ", spread " +
             std::to_string(static_cast<int>(how)) + ", " + topsum::to_text(policy) + ", " + topsum::to_text(exchange);
    }
  }
  return {};
}

// Refreshes, boundaries and reuse all happen, and nothing is cut.
topsum::ok_topk uncut(int ranks, int bucket = 4) {
  return {.boundaries_every = 3, .threshold_every = 4, .bucket = bucket, .region_capacity = static_cast<double>(ranks)};
}

topsum::layout const layers{{"a", {7, 5}}, {"none", {0, 3}}, {"b", {41}}, {"scalar", {}}, {"c", {2, 13}}};

}  // namespace

TEST_CASE("ok_topk equals its oracle on every input and spread over 70 steps") {
  for (input const kind : every_input) {
    for (spread const how : every_spread) {
      CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.2}}, uncut(3), 97, 3, kind, how, 70) == "");
    }
  }
}

TEST_CASE("ok_topk equals its oracle for every number of ranks from 1 to 8 and buckets from 1 to 8") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto const kind = every_input[static_cast<std::size_t>(ranks) % std::size(every_input)];
    for (spread const how : {spread::alike, spread::disjoint}) {
      CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.3}}, uncut(ranks, 9 - ranks), 101, ranks,
                              input::laplace, how, 70) == "");
      CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.1}}, uncut(ranks, ranks), 101, ranks, kind, how,
                              20) == "");
    }
  }
}

TEST_CASE("ok_topk with default parameters equals its oracle up to 4 ranks, over a period of 70 steps") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.05}}, topsum::ok_topk{}, 499, ranks,
                            input::laplace, spread::alike, 70) == "");
    CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.1}}, topsum::ok_topk{}, 97, ranks,
                            input::small_integers, spread::one_empty, 35) == "");
  }
}

TEST_CASE("ok_topk equals its oracle where messages to an owner are cut") {
  topsum::ok_topk const cutting{.boundaries_every = 5, .threshold_every = 4, .region_capacity = 1};
  for (input const kind : {input::laplace, input::increasing, input::one_spike, input::small_integers}) {
    for (spread const how : every_spread) {
      CHECK(difference<float>(topsum::global{topsum::top_k{.k = 700}}, cutting, 1009, 8, kind, how, 12) == "");
    }
  }
}

TEST_CASE("ok_topk equals its oracle with reused thresholds, by layers, in double, and however messages arrive") {
  topsum::reused_threshold const reused{.density = 0.2, .every = 5};
  for (input const kind : every_input) {
    CHECK(difference<float>(topsum::global{reused}, uncut(5), 97, 5, kind, spread::alike, 40, 3) == "");
    CHECK(difference<double>(topsum::layer_wise{reused}, uncut(4, 2), layers, 4, kind, spread::alike, 40, 4) == "");
    CHECK(difference<float>(topsum::layer_wise{topsum::top_k{.density = 0.1}}, uncut(2, 1), layers, 2, kind,
                            spread::one_empty, 40) == "");
  }
}

TEST_CASE("ok_topk equals its oracle when every step balances, and when it never does") {
  for (double const above : {1.0, 1e9}) {
    auto exchange = uncut(5);
    exchange.balance_above = above;
    for (spread const how : every_spread) {
      CHECK(difference<float>(topsum::global{topsum::top_k{.k = 23}}, exchange, 97, 5, input::laplace, how, 20) == "");
      CHECK(difference<float>(topsum::global{topsum::top_k{.k = 23}}, exchange, 97, 5, input::increasing, how, 20) ==
            "");
    }
  }
}

TEST_CASE("gather_all equals its oracle on every input and spread") {
  topsum::reused_threshold const reused{.density = 0.1, .every = 4};
  for (input const kind : every_input) {
    for (spread const how : every_spread) {
      CHECK(difference<float>(topsum::global{topsum::top_k{.density = 0.1}}, topsum::gather_all{}, 97, 5, kind, how,
                              12) == "");
      CHECK(difference<float>(topsum::layer_wise{reused}, topsum::gather_all{}, layers, 3, kind, how, 12) == "");
    }
  }
}

TEST_CASE("dense equals its oracle, which sums block b of the ring from rank b upwards") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (input const kind : every_input) {
      CHECK(difference<float>(topsum::global{topsum::top_k{}}, topsum::dense{}, 97, ranks, kind, spread::alike, 3) ==
            "");
      CHECK(difference<double>(topsum::global{topsum::top_k{}}, topsum::dense{}, layers, ranks, kind, spread::one_empty,
                               3) == "");
    }
  }
}

TEST_CASE_TEMPLATE("plans over 16-bit gradients equal the oracle in float, rounded once at the end", T, topsum::half,
                   topsum::bfloat16) {
  topsum::global const exact{topsum::top_k{.density = 0.2}};
  topsum::layer_wise const reused{topsum::reused_threshold{.density = 0.2, .every = 3}};
  for (input const kind : every_input) {
    for (spread const how : {spread::alike, spread::one_empty}) {
      CHECK(difference<T>(exact, uncut(3), 97, 3, kind, how, 20) == "");
      CHECK(difference<T>(exact, topsum::gather_all{}, 97, 3, kind, how, 5) == "");
      CHECK(difference<T>(reused, topsum::gather_all{}, layers, 2, kind, how, 7) == "");
      CHECK(difference<T>(exact, topsum::dense{}, 97, 3, kind, how, 3) == "");
    }
  }
}

TEST_CASE("rows, strided rows and tiles travel through whole plans as their oracles say") {
  topsum::layout const shapes{{"conv", {4, 12, 3, 3}}, {"bias", {5}}, {"linear", {6, 20}}, {"none", {0, 2}}};
  topsum::all_dimension const by_row{topsum::top_k{.density = 0.1}};
  topsum::all_dimension const by_column{topsum::reused_threshold{.density = 0.1, .every = 3},
                                        {.along = topsum::axis::first}};
  topsum::chunked const by_tile{topsum::top_k{.k = 3},
                                topsum::tiles{.height = 4, .width = 8, .fit = topsum::chunk_fit::pad_last}};
  for (input const kind : {input::laplace, input::small_integers, input::all_zero}) {
    for (int ranks : {1, 2, 3}) {
      CHECK(difference<float>(by_row, topsum::gather_all{}, shapes, ranks, kind, spread::alike, 6) == "");
      CHECK(difference<float>(by_row, uncut(ranks), shapes, ranks, kind, spread::alike, 6) == "");
      CHECK(difference<float>(by_column, topsum::gather_all{}, shapes, ranks, kind, spread::alike, 8) == "");
      CHECK(difference<float>(by_tile, uncut(ranks), shapes, ranks, kind, spread::alike, 6) == "");
    }
  }
}
