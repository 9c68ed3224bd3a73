// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges times those that agree on a support first.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/exchange_checks.hpp"
#include "support/ranks.hpp"

using test::check_corners;
using test::check_exchange;
using test::expect_none;

namespace {

// Says that it draws alike, and draws one entry more on each rank than on the one before.
struct drifting : topsum::shared_random {
  static constexpr bool fixed_count = false;
  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<topsum::piece const> pieces, std::uint64_t step,
              state<B, R> const& before, state<B, R>& after, topsum::entries_view<B, R, I> out) const {
    topsum::shared_random::select(backend, from, pieces, step, before, after, out);
    static std::atomic<std::size_t> next{0};
    backend.top_of(out, 1 + next++ % 3, out);
  }
};

}  // namespace

TEST_CASE("aligned{leader} keeps the laws of exchanges") {
  topsum::aligned const stage{topsum::leader{}};
  check_corners<float>(stage, 2);
  check_exchange<float>(stage, 5, 1);
  check_exchange<topsum::half>(stage, 2, 9);
}

TEST_CASE("aligned{owners} keeps the laws of exchanges") {
  topsum::aligned const stage{topsum::owners{}};
  check_corners<float>(stage, 2);
  check_exchange<float>(stage, 3, 1);
  check_exchange<double, std::uint64_t>(stage, 2, 11);
}

TEST_CASE("aligned{kept_mask} keeps the laws of exchanges, through a save and a load between agreements") {
  check_corners<float>(topsum::aligned{topsum::kept_mask{topsum::leader{}, 3}}, 2);
  check_exchange<float>(topsum::aligned{topsum::kept_mask{topsum::leader{}, 3}}, 7, 4);
  check_exchange<double, std::uint64_t>(topsum::aligned{topsum::kept_mask{topsum::owners{}, 4}}, 5, 10);
  // A support of up to kP entries.
  for (int const ranks : {1, 3, 8}) {
    topsum::aligned const stage{topsum::kept_mask{topsum::chosen_by{topsum::gather_all{}}, 3}};
    expect_none(topsum::laws::exchange<float>(stage, ranks, 97, 5, topsum::top_k{.k = 9}));
  }
}

TEST_CASE("aligned{chosen_by} keeps the laws of exchanges") {
  check_exchange<float>(topsum::aligned{topsum::chosen_by{topsum::interleaved_quota{}}}, 3, 2);
  check_exchange<float>(
      topsum::aligned{topsum::chosen_by{topsum::ok_topk{.boundaries_every = 2, .threshold_every = 3}}}, 4, 8);
}

TEST_CASE("aligned{as_selected} keeps the laws of exchanges with what all ranks draw alike") {
  for (int const ranks : {1, 2, 3, 8}) {
    for (std::size_t const n : {0U, 1U, 97U}) {
      expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::as_selected{}}, ranks, n, 3,
                                                topsum::shared_random{.density = 0.2, .seed = 5}));
    }
    expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::as_selected{}}, ranks, 97, 2,
                                              topsum::layer_wise{topsum::shared_random{.density = 0.1}}));
  }
}

TEST_CASE("ranks that draw different numbers of entries are told so") {
  auto const ends = test::endings(3, [](topsum::local::communicator& comm) {
    topsum::layout const shapes{97};
    auto plan = topsum::plan_allreduce<float>(comm, shapes, drifting{{.density = 0.2}},
                                              topsum::aligned{topsum::as_selected{}});
    std::vector<float> x(97, 1.0F);
    plan(std::span<float>{x});
  });
  for (auto const& end : ends) {
    CHECK(end.code == topsum::errc::mismatch);
    CHECK(end.what.find("as_selected") != std::string::npos);
  }
}

TEST_CASE("kept_mask asks for an agreement once in so many steps, and keeps the support between") {
  constexpr std::size_t n = 40;
  topsum::local::run(3, [&](topsum::local::communicator comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 4},
                                              topsum::aligned{topsum::kept_mask{topsum::leader{}, 3}});
    std::vector<std::size_t> support;
    for (std::uint64_t step = 0; step < 7; ++step) {
      auto x = topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike, n,
                                                  comm.rank(), 3, step);
      auto const report = plan(std::span<float>{x});
      std::vector<std::size_t> now;
      for (std::size_t i = 0; i < n; ++i) {
        if (x[i] != 0) now.push_back(i);
      }
      CHECK(now.size() == 4);
      if (step % 3 != 0) CHECK(now == support);
      // The leader's indices: one message to each child of a tree of three.
      if (step % 3 != 0) CHECK(report.control_bytes == 48 * 2);
      support = now;
    }
  });
}

TEST_CASE("chosen_by sums every rank's accumulators where the exchange's result has entries") {
  constexpr std::size_t n = 64;
  topsum::local::run(4, [&](topsum::local::communicator comm) {
    auto alone = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 8}, topsum::sum{}, topsum::no_residual{},
                                               topsum::merge_tree{});
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 8}, topsum::sum{},
                                              topsum::aligned{topsum::chosen_by{topsum::merge_tree{}}});
    auto const mine = [&](int rank) {
      return topsum::laws::make_gradient<float>(topsum::laws::input::small_integers, topsum::laws::spread::alike, n,
                                                rank, 4, 0);
    };
    auto chosen = mine(comm.rank());
    auto x = chosen;
    auto const result = alone.sparse(std::span<float const>{chosen});
    plan(std::span<float>{x});
    std::vector<float> want(n);
    for (auto const i : result.indices) {
      for (int r = 0; r < 4; ++r) want[i] += mine(r)[i];
    }
    CHECK(x == want);
  });
}

TEST_CASE("aligned exchanges keep the laws with codecs and momentum's accumulators") {
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  for (int const ranks : {1, 3, 8}) {
    topsum::top_k const rule{.k = 40};
    expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::leader{}}, ranks, 97, 3, rule, codec));
    expect_none(topsum::laws::exchange<float>(topsum::aligned{topsum::owners{}}, ranks, 97, 3,
                                              topsum::layer_wise{topsum::reused_threshold{.density = 0.1, .every = 2}},
                                              codec));
  }
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("aligned exchanges keep the laws in a memory space of its own") {
  test::archetype_backend const on;
  check_exchange<float>(topsum::aligned{topsum::leader{}}, 2, 4, on);
  check_exchange<float>(topsum::aligned{topsum::owners{}}, 2, 7, on);
}
#endif

TEST_CASE("aligned{leader} sums every rank's accumulators at the entries that the leader of the step selected") {
  constexpr int ranks = 3;
  constexpr std::size_t n = 30;
  topsum::local::run(ranks, [&](topsum::local::communicator comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = 2}, topsum::sum{}, topsum::aligned{});
    for (std::size_t step = 0; step < 4; ++step) {
      // Rank r is large at 5r and 5r + 1; everybody has 1 elsewhere.
      std::vector<float> gradient(n, 1);
      auto const r = static_cast<std::size_t>(comm.rank());
      gradient[5 * r] = 100;
      gradient[5 * r + 1] = 50;
      auto const before = std::vector<float>(plan.residual().begin(), plan.residual().end());
      auto const report = plan(gradient);
      CHECK(report.result == 2);
      std::size_t const lead = step % ranks;
      for (std::size_t i = 0; i < n; ++i) {
        bool const in = i == 5 * lead || i == 5 * lead + 1;
        CHECK((gradient[i] != 0) == in);
        float const mine = before[i] + (i == 5 * r ? 100.0F : i == 5 * r + 1 ? 50.0F : 1.0F);
        CHECK(plan.residual()[i] == (in ? 0.0F : mine));
      }
    }
  });
}

TEST_CASE("aligned exchanges send 2m(P-1)/P words of values") {
  constexpr std::size_t n = 1200;
  constexpr std::size_t k = 120;
  for (int const ranks : {1, 2, 3, 4, 8}) {
    topsum::local::run(ranks, [&](topsum::local::communicator comm) {
      auto const P = static_cast<double>(ranks);
      auto const words = [&](auto const& stage) {
        auto plan = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, stage);
        auto gradient = topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike, n,
                                                           comm.rank(), ranks, 1);
        auto const report = plan(gradient);
        return static_cast<double>(report.bytes - report.control_bytes) / 4;
      };
      double const values = 2.0 * k * (P - 1) / P + 2 * P;
      double const children = std::ceil(std::log2(P));
      CHECK(words(topsum::aligned{topsum::leader{}}) <= values + children * (k * 11.0 / 32 + 1));
      double const share = k / P + 2;
      CHECK(words(topsum::aligned{topsum::owners{}}) <= values + 4 * P + (P - 1) * (share * 11 / 32 + 1));
    });
  }
}
