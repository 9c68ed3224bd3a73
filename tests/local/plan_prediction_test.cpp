// SPDX-License-Identifier: BSL-1.0
// What exchanges predict of themselves, against what a transport counts; and what `automatic` makes of it.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::exchange_rates;
using topsum::exchange_shape;

constexpr exchange_shape shape_of(std::size_t n, std::size_t k, int ranks) { return {n, k, 0, ranks}; }

// Entries at random positions, none of a pattern: selections of different ranks meet by chance.
std::vector<float> random_gradient(std::size_t n, int rank, std::uint64_t step) {
  std::mt19937_64 random{1000 * step + static_cast<std::uint64_t>(rank)};
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

// Bytes of entries sent by the busiest rank in an average step.
template <class X, class K>
double counted_bytes(X const& exchange, K const& codec, std::size_t n, std::size_t k, int ranks) {
  constexpr std::uint64_t steps = 4;
  auto const sent = topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, topsum::no_residual{}, exchange, codec);
    double bytes = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      auto x = random_gradient(n, comm.rank(), step);
      auto const done = plan(std::span<float>{x});
      bytes += static_cast<double>(done.bytes - done.control_bytes);
    }
    return bytes / static_cast<double>(steps);
  });
  double most = 0;
  for (double const one : sent) most = std::max(most, one);
  return most;
}

template <class X, class K = topsum::raw>
void check_bytes(X const& exchange, double low, double high, K const& codec = {}) {
  constexpr std::size_t n = 20000;
  for (int const ranks : {1, 2, 3, 4, 7, 8, 16}) {
    for (std::size_t const k : {std::size_t{200}, std::size_t{2000}}) {
      CAPTURE(exchange.name);
      CAPTURE(ranks);
      CAPTURE(k);
      double const said = exchange.template cost<float, std::uint32_t>(codec, shape_of(n, k, ranks)).bytes;
      double const counted = counted_bytes(exchange, codec, n, k, ranks);
      CAPTURE(said);
      CAPTURE(counted);
      CHECK(said >= low * counted);
      CHECK(said <= high * counted);
    }
  }
}

template <class... Candidates>
std::string_view choice_of(topsum::automatic<Candidates...> const& stage, std::size_t n, std::size_t k, int ranks) {
  auto const names = topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, stage);
    auto x = random_gradient(n, comm.rank(), 0);
    auto const done = plan(std::span<float>{x});
    auto const seconds = stage.template predict<float, std::uint32_t>(topsum::raw{}, shape_of(n, k, ranks),
                                                                      *stage.rates);
    CHECK(done.predicted_seconds == *std::ranges::min_element(seconds));
    return done.exchange;
  });
  for (auto const name : names) CHECK(name == names[0]);
  return names[0];
}

}  // namespace

TEST_CASE("exchanges predict the bytes that they send") {
  check_bytes(topsum::gather_all{}, 1, 1);
  check_bytes(topsum::merge_tree{}, 1, 2.1);  // on the critical path; no rank sends all of it
  check_bytes(topsum::spar_reduce_scatter{}, 1, 1.05);
  check_bytes(topsum::interleaved_quota{}, 1, 1.05);
  check_bytes(topsum::recursive_doubling{}, 0.7, 1.5);
  check_bytes(topsum::split_gather{}, 0.9, 1.1);
  check_bytes(topsum::ok_topk{}, 0.6, 1.2);
}

TEST_CASE("exchanges predict the bytes that they send with a codec") {
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  check_bytes(topsum::gather_all{}, 1, 1, codec);
  check_bytes(topsum::interleaved_quota{}, 0.95, 1.1, codec);
  check_bytes(topsum::ok_topk{}, 0.6, 1.2, codec);
}

TEST_CASE("automatic chooses differently on both sides of each crossover") {
  topsum::gather_all const all;
  topsum::ok_topk const owners;
  constexpr std::size_t n = 20000;
  constexpr std::size_t k = 400;
  for (int const ranks : {3, 4, 8}) {
    CAPTURE(ranks);
    auto const cost = [&](auto const& x) {
      return x.template cost<float, std::uint32_t>(topsum::raw{}, shape_of(n, k, ranks));
    };
    auto const a = cost(all);
    auto const b = cost(owners);
    REQUIRE(a.messages < b.messages);
    REQUIRE(a.bytes > b.bytes);
    // Where both take as long: (messages of b - of a) alpha = (bytes of a - of b) beta.
    double const beta = 1e-9;
    double const even = beta * (a.bytes - b.bytes) / (b.messages - a.messages);
    CHECK(choice_of(topsum::automatic{exchange_rates{.alpha = 1.01 * even, .beta = beta}, all, owners}, n, k, ranks) ==
          "gather_all");
    CHECK(choice_of(topsum::automatic{exchange_rates{.alpha = 0.99 * even, .beta = beta}, all, owners}, n, k, ranks) ==
          "ok_topk");
  }
  // And in k, with the rates given: few entries are gathered, many go to owners.
  exchange_rates const rates{.alpha = 5e-6, .beta = 3.2e-10};
  CHECK(choice_of(topsum::automatic{rates, all, owners}, n, 4, 8) == "gather_all");
  CHECK(choice_of(topsum::automatic{rates, all, owners}, n, n / 2, 8) == "ok_topk");
}

TEST_CASE("automatic compares latency, bytes and work, each alone") {
  constexpr std::size_t n = 20000;
  CHECK(choice_of(topsum::automatic{exchange_rates{.alpha = 1}}, n, 200, 8) == "recursive_doubling");
  CHECK(choice_of(topsum::automatic{exchange_rates{.alpha = 1}}, n, 200, 2) == "gather_all");
  CHECK(choice_of(topsum::automatic{exchange_rates{.beta = 1}}, n, 200, 8) == "ok_topk");
  CHECK(choice_of(topsum::automatic{exchange_rates{.gamma = 1}}, n, 200, 8) == "ok_topk");
  CHECK(choice_of(topsum::automatic{exchange_rates{}}, n, 200, 4) == "gather_all");  // the first of equals
}

TEST_CASE("rates that are none are refused") {
  for (double const wrong : {-1.0, std::nan("")}) {
    auto const ends = test::endings(2, [&](topsum::local::communicator& comm) {
      static_cast<void>(topsum::plan_allreduce<float>(comm, 10, topsum::automatic{exchange_rates{.beta = wrong}}));
    });
    for (auto const& end : ends) CHECK(end.code == topsum::errc::bad_argument);
  }
}
