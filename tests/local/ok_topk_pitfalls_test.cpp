// SPDX-License-Identifier: BSL-1.0
// Mistakes that other sparse allreduces have made, each as a test of ours.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::plan_allreduce;
using topsum::laws::input;
using topsum::laws::make_gradient;
using topsum::laws::spread;
using comm_t = topsum::local::communicator;

void expect(bool held, char const* sentence) {
  if (!held) throw std::logic_error{sentence};
}

template <class F>
void on_ranks(int ranks, F f) {
  for (auto const& e : test::endings(ranks, f)) CHECK_MESSAGE((e.code == topsum::errc::none && e.rank == -1), e.what);
}

std::size_t nonzeros(std::vector<float> const& x) {
  return static_cast<std::size_t>(std::count_if(x.begin(), x.end(), [](float v) { return v != 0; }));
}

constexpr topsum::ok_topk lively{.boundaries_every = 2, .threshold_every = 3};

}  // namespace

TEST_CASE("indices above 2^24 travel exactly") {
  constexpr std::size_t n = (std::size_t{1} << 24) + 41;
  std::set<std::size_t> const odd{5, (std::size_t{1} << 24) - 1, (std::size_t{1} << 24) + 1, (std::size_t{1} << 24) + 3,
                                  n - 1};
  on_ranks(2, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = 5}, topsum::no_residual{}, topsum::sum{});
    std::vector<float> x(n);
    for (std::size_t const i : odd) x[i] = 1;
    auto const view = plan.sparse(x);
    expect(std::set<std::size_t>(view.indices.begin(), view.indices.end()) == odd, "every index, and no neighbour");
    for (float const v : view.values) expect(v == 2, "the sum");
  });
}

TEST_CASE("steps with an exact threshold clear the residual too, so that no update is applied twice") {
  for (std::uint64_t const every : {1U, 4U}) {
    on_ranks(3, [every](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, 50, topsum::reused_threshold{.density = 0.2, .every = every},
                                        topsum::ok_topk{.threshold_every = every}, topsum::sum{});
      std::vector<float> applied(50);
      for (int step = 0; step < 30; ++step) {
        // Something to say in the first step only.
        std::vector<float> x(50);
        for (std::size_t i = 0; step == 0 && i < 50; ++i) x[i] = static_cast<float>(i + 1);
        plan(std::span<float>{x});
        for (std::size_t i = 0; i < 50; ++i) applied[i] += x[i];
      }
      for (std::size_t i = 0; i < 50; ++i) {
        float const left = plan.residual()[i];
        expect(applied[i] == 3 * (static_cast<float>(i + 1) - left), "applied once or not at all");
      }
    });
  }
}

TEST_CASE("ties at the threshold are kept, up to k, the smaller indices first") {
  on_ranks(4, [](comm_t& comm) {
    for (std::uint64_t const every : {1U, 3U}) {
      auto plan = plan_allreduce<float>(comm, 40, topsum::reused_threshold{.k = 7, .every = every, .nudge = 1},
                                        topsum::ok_topk{.threshold_every = every}, topsum::no_residual{},
                                        topsum::sum{});
      for (int step = 0; step < 5; ++step) {
        std::vector<float> x(40, 2.5F);
        auto const view = plan.sparse(x);
        expect(view.size() == 7, "k of the ties, not none and not all");
        for (std::size_t e = 0; e < view.size(); ++e)
          expect(view.indices[e] == e && view.values[e] == 10, "the first ones");
      }
    }
  });
}

TEST_CASE("one rank works like any number") {
  on_ranks(1, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 100, topsum::top_k{.k = 4}, lively);
    for (int step = 0; step < 7; ++step) {
      auto x = make_gradient<float>(input::laplace, spread::alike, 100, 0, 1, 1);
      plan(std::span<float>{x});
      expect(nonzeros(x) == 4, "k entries");
    }
  });
}

TEST_CASE("all-zero and constant gradients, and ranks with nothing to send, are ordinary steps") {
  for (int const ranks : {2, 5, 8}) {
    on_ranks(ranks, [](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, 64, topsum::reused_threshold{.k = 6, .every = 2}, lively, topsum::sum{});
      for (int step = 0; step < 12; ++step) {
        bool const silent = step % 4 == 1 || (step % 4 == 2 && comm.rank() != 0);
        std::vector<float> x(64, silent ? 0.0F : -1.0F);
        auto const done = plan(std::span<float>{x});
        expect(done.result <= 6, "at most k entries");
        if (step == 0) expect(done.result == 6, "k of a constant gradient");
        for (float const v : x) expect(std::isfinite(v) && v <= 0, "sums of what was there");
      }
    });
  }
}

TEST_CASE("gradients with negative values only travel as well as positive ones, with their signs") {
  on_ranks(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 200, topsum::reused_threshold{.density = 0.1, .every = 3}, lively,
                                      topsum::sum{});
    auto mirrored = plan_allreduce<float>(comm, 200, topsum::reused_threshold{.density = 0.1, .every = 3}, lively,
                                          topsum::sum{});
    for (std::uint64_t step = 0; step < 8; ++step) {
      auto x = make_gradient<float>(input::negative_only, spread::alike, 200, comm.rank(), 3, step);
      auto y = x;
      for (float& v : y) v = -v;
      plan(std::span<float>{x});
      mirrored(std::span<float>{y});
      if (step == 0) expect(nonzeros(x) > 0, "they travel");
      for (std::size_t i = 0; i < 200; ++i) expect(x[i] == -y[i] && x[i] <= 0, "the mirror image");
    }
  });
}

TEST_CASE("what is put back keeps its sign") {
  on_ranks(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 8, topsum::top_k{.k = 1}, lively);
    std::vector<float> x{0, 0, -5, 0, 0, 9, 0, 0};
    plan(std::span<float>{x});
    expect(x[5] == 9 && plan.residual()[2] == -5 && plan.residual()[5] == 0, "the loser stays, negative");
  });
}

TEST_CASE("fewer selected entries than ranks cut no boundary") {
  for (int const ranks : {5, 8}) {
    for (std::size_t const k : {std::size_t{1}, std::size_t{2}, static_cast<std::size_t>(ranks) - 1}) {
      on_ranks(ranks, [&](comm_t& comm) {
        auto plan = plan_allreduce<float>(comm, 1000, topsum::top_k{.k = k}, lively, topsum::sum{});
        std::vector<float> applied(1000);
        std::vector<float> given(1000);
        for (std::uint64_t step = 0; step < 9; ++step) {
          auto x = make_gradient<float>(input::mostly_zero, spread::disjoint, 1000, comm.rank(), comm.size(), step);
          for (std::size_t i = 0; i < 1000; ++i) given[i] += x[i];
          auto const done = plan(std::span<float>{x});
          expect(done.result <= k, "at most k");
          for (std::size_t i = 0; i < 1000; ++i) applied[i] += x[i];
        }
        // Supports are disjoint: what was applied of this rank's part is what it gave less what it keeps.
        auto const P = static_cast<std::size_t>(comm.size());
        for (std::size_t i = 0; i < 1000; ++i) {
          if (i * P / 1000 == static_cast<std::size_t>(comm.rank()))
            expect(applied[i] == given[i] - plan.residual()[i], "nothing is lost");
        }
      });
    }
  }
}

TEST_CASE("a threshold above everything hangs nothing and heals at the next refresh") {
  on_ranks(4, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 100, topsum::reused_threshold{.k = 5, .every = 4},
                                      topsum::ok_topk{.threshold_every = 4});
    for (int step = 0; step < 9; ++step) {
      std::vector<float> x(100, step == 0 ? 1e6F : 0.0F);
      for (std::size_t i = 0; step > 0 && i < 100; ++i) x[i] = 1e-3F * static_cast<float>(i + 1);
      auto const done = plan(std::span<float>{x});
      if (step % 4 == 0) expect(done.result == 5, "a refresh meets k again");
      expect(done.result <= 5, "never more than k");
    }
  });
}

TEST_CASE("tiny values are values") {
  on_ranks(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 30, topsum::reused_threshold{.k = 30, .every = 2}, lively, topsum::sum{});
    for (int step = 0; step < 4; ++step) {
      std::vector<float> x(30);
      for (std::size_t i = 0; i < 30; ++i) x[i] = std::ldexp(1.0F, -100 - static_cast<int>(i));
      auto const given = x;
      plan(std::span<float>{x});
      if (step == 0) {
        for (std::size_t i = 0; i < 30; ++i) expect(x[i] == 3 * given[i], "as small as they are, they travel");
      }
    }
  });
}

TEST_CASE("values that are not normal numbers are ordered by magnitude like others") {
  on_ranks(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 4, topsum::top_k{.k = 2}, lively, topsum::no_residual{}, topsum::sum{});
    float const tiny = std::numeric_limits<float>::denorm_min();
    std::vector<float> x{tiny, -3 * tiny, 0, 2 * tiny};
    plan(std::span<float>{x});
    expect(x == std::vector<float>{0, -6 * tiny, 0, 4 * tiny}, "the larger two");
  });
}

TEST_CASE("there is no hidden dense warm-up: the first step is sparse already") {
  on_ranks(4, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 10000, topsum::top_k{.k = 50});
    auto x = make_gradient<float>(input::laplace, spread::alike, 10000, comm.rank(), 4, 0);
    auto const done = plan(std::span<float>{x});
    expect(done.step == 0 && done.result <= 50 && nonzeros(x) <= 50 && done.bytes < 10000, "k entries and O(k) bytes");
  });
}

TEST_CASE("instances share nothing: residuals and states belong to their plan") {
  on_ranks(2, [](comm_t& comm) {
    auto alone = plan_allreduce<float>(comm, 100, topsum::reused_threshold{.k = 5, .every = 3}, lively);
    auto one = plan_allreduce<float>(comm, 100, topsum::reused_threshold{.k = 5, .every = 3}, lively);
    auto two = plan_allreduce<float>(comm, 100, topsum::reused_threshold{.k = 5, .every = 3}, lively);
    for (std::uint64_t step = 0; step < 8; ++step) {
      auto const x = make_gradient<float>(input::laplace, spread::alike, 100, comm.rank(), 2, step);
      auto a = x;
      auto b = x;
      auto c = make_gradient<float>(input::increasing, spread::alike, 100, comm.rank(), 2, step);
      alone(std::span<float>{a});
      two(std::span<float>{c});
      one(std::span<float>{b});
      expect(test::same_bits(a, b), "another plan's steps change nothing");
    }
  });
}

TEST_CASE("the residual belongs to the plan, not to the buffer that was passed") {
  on_ranks(2, [](comm_t& comm) {
    auto fixed = plan_allreduce<float>(comm, 100, topsum::top_k{.k = 5}, lively);
    auto moving = plan_allreduce<float>(comm, 100, topsum::top_k{.k = 5}, lively);
    std::vector<float> buffer(100);
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto const x = make_gradient<float>(input::laplace, spread::alike, 100, comm.rank(), 2, step);
      std::copy(x.begin(), x.end(), buffer.begin());
      auto fresh = std::make_unique<std::vector<float>>(x);
      fixed(std::span<float>{buffer});
      moving(std::span<float>{*fresh});
      expect(test::same_bits(buffer, *fresh), "a rebuilt buffer changes nothing");
    }
  });
}

TEST_CASE("payload counts that coincide with a dense size are still a selection") {
  on_ranks(4, [](comm_t& comm) {
    // k P = n: the gathered entries are as many as the values of the gradient.
    auto plan = plan_allreduce<float>(comm, 40, topsum::top_k{.k = 10}, topsum::gather_all{}, topsum::no_residual{},
                                      topsum::sum{});
    std::vector<float> x(40);
    for (std::size_t i = 0; i < 40; ++i) x[i] = static_cast<float>(40 - i);
    plan(std::span<float>{x});
    for (std::size_t i = 0; i < 40; ++i)
      expect(x[i] == (i < 10 ? 4 * static_cast<float>(40 - i) : 0), "the sum of the selected");
  });
}

TEST_CASE("what is cut is cut by magnitude, not by index") {
  on_ranks(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, 60, topsum::reused_threshold{.k = 6, .every = 100},
                                      topsum::ok_topk{.threshold_every = 100}, topsum::no_residual{});
    for (int step = 0; step < 3; ++step) {
      // After step 0 everything is above the threshold, and the large values come last.
      std::vector<float> x(60);
      for (std::size_t i = 0; i < 60; ++i) x[i] = static_cast<float>(step == 0 ? 1 : i + 100);
      plan(std::span<float>{x});
      for (std::size_t i = 0; step > 0 && i < 60; ++i) expect((x[i] != 0) == (i >= 54), "the largest stay");
    }
  });
}

TEST_CASE("entries that messages could not hold stay in the residual") {
  constexpr std::size_t n = 4000;
  constexpr std::size_t k = 1600;
  std::vector<std::vector<float>> residuals(8);
  std::vector<float> applied(n);
  std::vector<std::size_t> cut(8);
  on_ranks(8, [&](comm_t& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = k},
                                      topsum::ok_topk{.threshold_every = 3, .region_capacity = 1}, topsum::sum{});
    std::vector<float> sum(n);
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto x = make_gradient<float>(input::small_integers, spread::alike, n, comm.rank(), 8, step);
      for (std::size_t i = 0; step > 0 && i < n / 10; ++i) x[i] *= 64;
      auto const done = plan(std::span<float>{x});
      expect(done.sent <= done.selected && done.result <= k, "never more than selected, never more than k");
      cut[r] += done.selected - done.sent;
      for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
    }
    residuals[r].assign(plan.residual().begin(), plan.residual().end());
    if (r == 0) applied = sum;
  });
  CHECK(std::any_of(cut.begin(), cut.end(), [](std::size_t c) { return c > 0; }));
  std::vector<float> have = applied;
  std::vector<float> owed(n);
  for (int r = 0; r < 8; ++r) {
    for (std::size_t i = 0; i < n; ++i) have[i] += residuals[static_cast<std::size_t>(r)][i];
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto const x = make_gradient<float>(input::small_integers, spread::alike, n, r, 8, step);
      for (std::size_t i = 0; i < n; ++i) owed[i] += step > 0 && i < n / 10 ? x[i] * 64 : x[i];
    }
  }
  CHECK(have == owed);
}

TEST_CASE("sums do not depend on who comes first") {
  constexpr std::size_t n = 300;
  std::vector<std::vector<float>> first;
  for (std::uint64_t const seed : {0U, 1U, 2U, 3U, 4U}) {
    topsum::local::options options;
    options.shuffle_seed = seed;
    auto const results = topsum::local::run(
        7,
        [](comm_t& comm) {
          auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = 90},
                                            topsum::ok_topk{.boundaries_every = 2, .threshold_every = 3, .bucket = 2});
          std::vector<float> all;
          for (std::uint64_t step = 0; step < 6; ++step) {
            auto x = make_gradient<float>(input::laplace, spread::alike, n, comm.rank(), 7, step);
            plan(std::span<float>{x});
            all.insert(all.end(), x.begin(), x.end());
          }
          return all;
        },
        options);
    if (first.empty()) first = results;
    for (auto const& r : results) CHECK(test::same_bits(r, first[0]));
  }
}

TEST_CASE("any number of ranks works, powers of two or not") {
  for (int ranks = 1; ranks <= 13; ++ranks) {
    on_ranks(ranks, [](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, 97, topsum::top_k{.k = 97}, lively, topsum::sum{});
      std::vector<float> x(97, static_cast<float>(comm.rank() + 1));
      plan(std::span<float>{x});
      auto const P = static_cast<float>(comm.size());
      for (float const v : x) expect(v == P * (P + 1) / 2, "everything arrives");
    });
  }
}

TEST_CASE("empty gradients and empty selections are ordinary steps") {
  for (int const ranks : {1, 2, 5}) {
    on_ranks(ranks, [](comm_t& comm) {
      for (std::size_t const n : {std::size_t{0}, std::size_t{5}}) {
        auto sparse = plan_allreduce<float>(comm, n, topsum::top_k{.k = 0}, lively);
        auto gathered = plan_allreduce<float>(comm, n, topsum::top_k{.k = 0}, topsum::gather_all{});
        auto dense = plan_allreduce<float>(comm, n, topsum::dense{});
        for (int step = 0; step < 4; ++step) {
          std::vector<float> x(n, 1.0F);
          sparse(std::span<float>{x});
          expect(nonzeros(x) == 0, "nothing travels");
          x.assign(n, 1.0F);
          expect(gathered.sparse(x).size() == 0, "nothing travels");
          dense(std::span<float>{x});
          expect(nonzeros(x) == n, "dense is dense");
        }
        expect(sparse.residual().size() == n && (n == 0 || sparse.residual()[0] == 4), "it waits in the residual");
      }
    });
  }
}
