// SPDX-License-Identifier: BSL-1.0
// Cost formulas, asserted: what a transport that counts saw, and what the report says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"
#include "support/recorded.hpp"

namespace {

using topsum::laws::every_input;
using topsum::laws::every_spread;
using topsum::laws::input;
using topsum::laws::make_gradient;
using topsum::laws::spread;

constexpr std::uint64_t word = 4;

// Calls see(step, report) for every step on one rank; the counts of both sides must agree.
template <class Gradient, class See, class... S>
void run_counted(int ranks, topsum::layout const& shapes, std::uint64_t steps, Gradient gradient_of, See see,
                 S const&... stages) {
  auto const differences = topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    topsum::counting<topsum::local::communicator> counted{comm};
    auto plan = topsum::plan_allreduce<float>(counted, shapes, stages...);
    int wrong = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      std::vector<float> gradient = gradient_of(step, comm.rank());
      counted.reset();
      topsum::report const done = plan(std::span<float>{gradient});
      wrong += counted.tally().bytes == done.bytes && counted.tally().messages == done.messages ? 0 : 1;
      see(step, comm.rank(), done);
    }
    return wrong;
  });
  for (int const wrong : differences) CHECK(wrong == 0);
}

struct words {
  double most_payload = 0;
  double most_control = 0;
  double sum_payload = 0;
};

// Payload and control words a rank, over steps of one plan.
template <class Gradient, class... S>
words words_of(int ranks, topsum::layout const& shapes, std::uint64_t steps, Gradient gradient_of, S const&... stages) {
  std::vector<words> each(static_cast<std::size_t>(ranks));
  run_counted(
      ranks, shapes, steps, gradient_of,
      [&](std::uint64_t, int rank, topsum::report const& done) {
        words& mine = each[static_cast<std::size_t>(rank)];
        auto const payload = static_cast<double>(done.bytes - done.control_bytes) / word;
        mine.most_payload = std::max(mine.most_payload, payload);
        mine.most_control = std::max(mine.most_control, static_cast<double>(done.control_bytes) / word);
        mine.sum_payload += payload;
      },
      stages...);
  words most;
  for (words const& one : each) {
    most.most_payload = std::max(most.most_payload, one.most_payload);
    most.most_control = std::max(most.most_control, one.most_control);
    most.sum_payload = std::max(most.sum_payload, one.sum_payload);
  }
  return most;
}

}  // namespace

TEST_CASE("ok_topk sends at most 6k + 124 words, and O(P) for headers and counts, on every input, spread and step") {
  constexpr std::size_t n = 601;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{60}, n}) {
      // All inputs at three sizes of the group, one each elsewhere.
      bool const all = k == 60 && (ranks == 2 || ranks == 5 || ranks == 9);
      for (std::size_t i = 0; i < std::size(every_input); ++i) {
        if (!all && i != (static_cast<std::size_t>(ranks) + k) % std::size(every_input)) continue;
        for (spread const how : every_spread) {
          CAPTURE(ranks);
          CAPTURE(k);
          CAPTURE(i);
          words const w = words_of(
              ranks, n, 9,
              [&](std::uint64_t step, int rank) {
                return make_gradient<float>(every_input[i], how, n, rank, ranks, step);
              },
              topsum::top_k{.k = k}, topsum::ok_topk{.boundaries_every = 8, .threshold_every = 4});
          CHECK(w.most_payload <= 6.0 * static_cast<double>(k) + 124);
          CHECK(w.most_control <= 24.0 * (ranks - 1) + 2.0 * ranks);
        }
      }
    }
  }
}

TEST_CASE("ok_topk's headers and counts are at most 30 words a peer where boundaries move between refreshes") {
  constexpr std::size_t n = 601;
  for (int const ranks : {2, 5, 8}) {
    for (spread const how : every_spread) {
      words const w = words_of(
          ranks, n, 24,
          [&](std::uint64_t step, int rank) { return make_gradient<float>(input::laplace, how, n, rank, ranks, step); },
          topsum::top_k{.k = 60}, topsum::ok_topk{.boundaries_every = 3, .threshold_every = 4});
      CHECK(w.most_payload <= 6.0 * 60 + 124);
      CHECK(w.most_control <= 30.0 * (ranks - 1));
    }
  }
}

TEST_CASE("ok_topk keeps its bound when one rank owns everything, and when every step balances") {
  constexpr std::size_t n = 4000;
  constexpr std::size_t k = 400;
  for (int const ranks : {5, 8}) {
    for (double const above : {1.0, 4.0, 1e9}) {
      CAPTURE(ranks);
      CAPTURE(above);
      // Step 0 places the boundaries evenly; then all large values move into the first region.
      words const w = words_of(
          ranks, n, 10,
          [&](std::uint64_t step, int rank) {
            auto x = make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
            for (std::size_t i = 0; step > 0 && i < n / 9; ++i) x[i] *= 1000;
            return x;
          },
          topsum::top_k{.k = k}, topsum::ok_topk{.threshold_every = 4, .balance_above = above});
      CHECK(w.most_payload <= 6.0 * k + 124);
    }
  }
}

TEST_CASE("ok_topk averages at most 6k(P-1)/P words over 64 steps where supports are spread") {
  constexpr std::size_t n = 5003;
  constexpr std::size_t k = 250;
  for (int const ranks : {2, 3, 4, 8}) {
    CAPTURE(ranks);
    words const w = words_of(
        ranks, n, 64,
        [&](std::uint64_t step, int rank) {
          return make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
        },
        topsum::top_k{.k = k}, topsum::ok_topk{});
    CHECK(w.sum_payload / 64 <= 6.0 * k * (ranks - 1) / ranks);
    CHECK(w.sum_payload / 64 >= 2.0 * k * (ranks - 1) / ranks);
  }
}

TEST_CASE("ok_topk averages at most 6k(P-1)/P words over 64 steps on recorded gradients") {
  test::recorded const data;
  for (int const ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    auto const gradient_of = [&](std::uint64_t step, int rank) {
      return data.gradient(static_cast<std::size_t>(step), static_cast<std::size_t>(rank));
    };
    double const k = 0.05 * test::recorded::n;
    words const exact = words_of(ranks, test::recorded::shapes(), 64, gradient_of, topsum::top_k{.density = 0.05},
                                 topsum::ok_topk{});
    CHECK(exact.sum_payload / 64 <= 6.0 * k * (ranks - 1) / ranks);
    words const reused = words_of(ranks, test::recorded::shapes(), 64, gradient_of,
                                  topsum::reused_threshold{.density = 0.05}, topsum::ok_topk{});
    CHECK(reused.sum_payload / 64 <= 6.0 * k * (ranks - 1) / ranks);
  }
}

TEST_CASE("gather_all sends exactly 2k(P-1) words, and 12 to each peer") {
  constexpr std::size_t n = 601;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{60}, n}) {
      std::vector<int> wrong(static_cast<std::size_t>(ranks));
      run_counted(
          ranks, n, 3,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
          },
          [&](std::uint64_t, int rank, topsum::report const& done) {
            auto const peers = static_cast<std::uint64_t>(ranks) - 1;
            bool const right = done.bytes - done.control_bytes == 2 * k * peers * word &&
                               done.control_bytes == 12 * peers * word;
            wrong[static_cast<std::size_t>(rank)] += right ? 0 : 1;
          },
          topsum::top_k{.k = k}, topsum::gather_all{});
      CHECK(wrong == std::vector<int>(static_cast<std::size_t>(ranks)));
    }
  }
}

TEST_CASE("dense sends exactly the ring, and 12 words to each peer") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (std::size_t const n : {std::size_t{0}, std::size_t{1}, std::size_t{601}, std::size_t{720}}) {
      auto const P = static_cast<std::size_t>(ranks);
      std::vector<std::uint64_t> sent(P);
      std::vector<std::uint64_t> control(P);
      run_counted(
          ranks, n, 1,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
          },
          [&](std::uint64_t, int rank, topsum::report const& done) {
            sent[static_cast<std::size_t>(rank)] = done.bytes - done.control_bytes;
            control[static_cast<std::size_t>(rank)] = done.control_bytes;
          },
          topsum::dense{});
      std::uint64_t all = 0;
      for (std::size_t r = 0; r < P; ++r) {
        // Every block but the next in the reduce-scatter, every block but the one after in the gather.
        auto const block = [&](std::size_t b) { return (b % P + 1) * n / P - b % P * n / P; };
        std::uint64_t const want = P == 1 ? 0 : (2 * n - block(r + 1) - block(r + 2)) * word;
        CHECK(sent[r] == want);
        CHECK(control[r] == 48 * (P - 1));
        all += sent[r];
      }
      CHECK(all == 2 * n * (P - 1) * word);
    }
  }
}

TEST_CASE("a latency of 2P messages and the small rounds: ok_topk's messages are bounded in P") {
  for (int const ranks : {2, 5, 8}) {
    std::vector<std::uint64_t> most(static_cast<std::size_t>(ranks));
    run_counted(
        ranks, 601, 40,
        [&](std::uint64_t step, int rank) {
          return make_gradient<float>(input::laplace, spread::alike, 601, rank, ranks, step);
        },
        [&](std::uint64_t step, int rank, topsum::report const& done) {
          if (step % 32 != 0)
            most[static_cast<std::size_t>(rank)] = std::max(most[static_cast<std::size_t>(rank)], done.messages);
        },
        topsum::top_k{.k = 60}, topsum::ok_topk{.balance_above = 1e9});
    // Headers, entries, counts, gather: P - 1 messages each; and where more than k would pass, an exact threshold.
    auto const peers = static_cast<std::uint64_t>(ranks) - 1;
    for (std::uint64_t const m : most) CHECK(m <= (4 + 1 + 31 * 2) * peers);
  }
}

TEST_CASE("a rank receives at most (2 region_capacity + 4)k words of payload") {
  constexpr std::size_t n = 8000;
  constexpr std::size_t k = 2000;
  constexpr int ranks = 8;
  for (double const capacity : {1.0, 2.0}) {
    std::vector<std::vector<std::uint64_t>> to(ranks);  // bytes a rank sent to each, in one step
    std::uint64_t most = 0;
    for (std::uint64_t steps = 2; steps <= 5; ++steps) {
      topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
        topsum::counting<topsum::local::communicator> counted{comm};
        auto plan = topsum::plan_allreduce<float>(counted, n, topsum::top_k{.k = k},
                                                  topsum::ok_topk{.threshold_every = 3, .region_capacity = capacity});
        for (std::uint64_t step = 0; step < steps; ++step) {
          auto x = make_gradient<float>(input::laplace, spread::alike, n, comm.rank(), ranks, step);
          for (std::size_t i = 0; step > 0 && i < n / 10; ++i) x[i] *= 1000;
          counted.reset();
          static_cast<void>(plan(std::span<float>{x}));
        }
        to[static_cast<std::size_t>(comm.rank())] = counted.tally().bytes_to;
      });
      for (std::size_t r = 0; r < ranks; ++r) {
        std::uint64_t received = 0;
        for (auto const& sent : to) received += sent[r];
        most = std::max(most, received);
      }
    }
    CHECK(static_cast<double>(most) <= ((2 * capacity + 4) * k + 124 + 24 * 7 + 16) * 4);
  }
}

TEST_CASE("interleaved_quota sends 2q words to each owner and all kept sums but one share, on every input") {
  for (std::size_t const n : {std::size_t{1}, std::size_t{7}, std::size_t{601}, std::size_t{4099}}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (std::size_t const k : {std::size_t{0}, std::size_t{1}, n / 10, n / 3, n}) {
        if (k > n) continue;
        input const kind = every_input[(n + static_cast<std::size_t>(ranks) + k) % std::size(every_input)];
        for (bool const by_quota : {true, false}) {
          CAPTURE(n);
          CAPTURE(ranks);
          CAPTURE(k);
          topsum::interleaved_quota const exchange;
          auto const P = static_cast<std::size_t>(ranks);
          topsum::quotas const wanted = exchange.shares(n, k, P);
          std::vector<std::uint64_t> sent(P);
          std::vector<std::size_t> result(P);
          auto const gradient = [&](std::uint64_t step, int rank) {
            return make_gradient<float>(kind, spread::alike, n, rank, ranks, step);
          };
          auto const see = [&](std::uint64_t, int rank, topsum::report const& done) {
            sent[static_cast<std::size_t>(rank)] = done.bytes - done.control_bytes;
            result[static_cast<std::size_t>(rank)] = done.result;
            CHECK(done.control_bytes == 48 * (P - 1));
            CHECK(done.messages <= 3 * (P - 1));
          };
          if (by_quota) {
            run_counted(ranks, n, 2, gradient, see, topsum::top_k{.k = k}, exchange);
          } else {
            run_counted(ranks, n, 2, gradient, see, topsum::fixed_threshold{.threshold = 3, .k = k}, exchange);
          }
          // ceil(k m / n) of each owner.
          std::vector<std::size_t> kept(P);
          std::size_t all_kept = 0;
          for (std::size_t r = 0; r < P; ++r) {
            kept[r] = (k * wanted.where.size_of(r) + n - 1) / n;
            all_kept += kept[r];
          }
          for (std::size_t r = 0; r < P; ++r) {
            std::uint64_t const ring = P == 1 ? 0 : 2 * word * (all_kept - kept[(r + 1) % P]);
            CHECK(sent[r] == 2 * word * (wanted.total() - wanted.of(r)) + ring);
            CHECK(result[r] == all_kept);
            // What the documentation says of it.
            CHECK(sent[r] <= 4 * word * wanted.each * (P - 1));
          }
          CHECK(all_kept >= k);
          CHECK(all_kept <= k + P);
          if (k == n) CHECK(all_kept == n);
        }
      }
    }
  }
}

TEST_CASE("interleaved_quota sends at most 4k(P-1)/P words and 4 a peer where k is not tiny") {
  for (int const ranks : {2, 3, 8, 16, 64}) {
    for (std::size_t const n : {std::size_t{100003}, std::size_t{1} << 20}) {
      auto const P = static_cast<std::size_t>(ranks);
      std::size_t const k = n / 100;
      topsum::quotas const wanted = topsum::interleaved_quota{}.shares(n, k, P);
      CHECK(static_cast<double>(wanted.each) <=
            static_cast<double>(k) / ranks + 1 + static_cast<double>(k) * 32 / static_cast<double>(n));
      CHECK(wanted.total() >= k);
      CHECK(wanted.total() <= k + 2 * P);
    }
  }
}

TEST_CASE("interleaved_quota with k = n gives what dense gives") {
  for (int const ranks : {1, 2, 5, 8}) {
    for (std::size_t const n : {1U, 3U, 97U, 1009U}) {
      topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
        auto const gradient = make_gradient<float>(input::small_integers, spread::alike, n, comm.rank(), ranks, 0);
        auto one = topsum::plan_allreduce<float>(comm, n, topsum::top_k{.k = n}, topsum::interleaved_quota{});
        auto other = topsum::plan_allreduce<float>(comm, n, topsum::dense{});
        auto a = gradient;
        auto b = gradient;
        one(std::span<float>{a});
        other(std::span<float>{b});
        CHECK(a == b);
      });
    }
  }
}

namespace {

std::size_t rounds_of(int ranks) {
  std::size_t rounds = 0;
  while ((1 << rounds) < ranks) ++rounds;
  return rounds;
}

}  // namespace

TEST_CASE("merge_tree sends at most 2k ceil(log2 P) words, on every input and spread") {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64}) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{60}, std::size_t{601}}) {
      spread const how = every_spread[(static_cast<std::size_t>(ranks) + k) % std::size(every_spread)];
      if (ranks > 9 && k != 60) continue;
      CAPTURE(ranks);
      CAPTURE(k);
      words const w = words_of(
          ranks, 601, 2,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, how, 601, rank, ranks, step);
          },
          topsum::top_k{.k = k}, topsum::merge_tree{});
      std::size_t const rounds = rounds_of(ranks);
      CHECK(w.most_payload <= 2.0 * static_cast<double>(k * rounds));
      CHECK(w.most_control <= 12.0 * (ranks - 1) + 2.0 * static_cast<double>(rounds));
    }
  }
}

TEST_CASE("recursive_doubling sends 2k log2 P words where selections are the same, 2k(P-1) where nothing coincides") {
  constexpr std::size_t n = 40000;
  constexpr std::size_t k = 20;
  for (int const ranks : {1, 2, 4, 8, 16}) {
    for (bool const same : {true, false}) {
      words const w = words_of(
          ranks, n, 1,
          [&](std::uint64_t, int rank) {
            std::vector<float> x(n);
            for (std::size_t i = 0; i < k; ++i) x[same ? i : static_cast<std::size_t>(rank) * k + i] = 1;
            return x;
          },
          topsum::top_k{.k = k}, topsum::recursive_doubling{});
      std::size_t const lists = same ? rounds_of(ranks) : static_cast<std::size_t>(ranks) - 1;
      CHECK(w.most_payload == 2.0 * static_cast<double>(k * lists));
      CHECK(w.most_control == 12.0 * (ranks - 1) + 2.0 * static_cast<double>(rounds_of(ranks)));
    }
  }
}

TEST_CASE(
    "recursive_doubling sends at most 2kP words more where ranks are folded, and never more than a bitmap a round") {
  for (int const ranks : {3, 5, 6, 7, 9, 12}) {
    for (std::size_t const k : {std::size_t{1}, std::size_t{20}, std::size_t{601}}) {
      words const w = words_of(
          ranks, 601, 2,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, spread::alike, 601, rank, ranks, step);
          },
          topsum::top_k{.k = k}, topsum::recursive_doubling{});
      double const core = std::pow(2.0, std::floor(std::log2(ranks)));
      // A list after the fold may have 2k entries.
      CHECK(w.most_payload <= 2.0 * static_cast<double>(k) * (2 * (core - 1) + ranks));
      CHECK(w.most_payload <= (601 + 601.0 / 32 + 2) * (std::log2(core) + 2));
      CHECK(w.most_control <= 12.0 * (ranks - 1) + 2.0 * (std::log2(core) + 2));
    }
  }
}

TEST_CASE("split_gather sends each region's entries once and each region's sums round the ring") {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64}) {
    for (std::size_t const k : {std::size_t{1}, std::size_t{60}, std::size_t{1200}}) {
      constexpr std::size_t n = 1200;
      if (ranks > 9 && k != 60) continue;
      CAPTURE(ranks);
      CAPTURE(k);
      words const w = words_of(
          ranks, n, 2,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
          },
          topsum::top_k{.k = k}, topsum::split_gather{});
      double const P = ranks;
      auto const sent = static_cast<double>(k);
      CHECK(w.most_payload <= 2 * sent + n * (1 + 1.0 / 32) + 2 * P);
      CHECK(w.most_payload <= 2 * sent + 2 * sent * P);
      CHECK(w.most_control <= 14 * (P - 1));
    }
    // The same k entries everywhere, as many in each region.
    if (1200 % ranks != 0) continue;
    constexpr std::size_t n = 1200 * 64;
    words const w = words_of(
        ranks, n, 1,
        [&](std::uint64_t, int) {
          std::vector<float> x(n);
          for (std::size_t i = 0; i < n; i += 64) x[i] = 1;
          return x;
        },
        topsum::top_k{.k = 1200}, topsum::split_gather{});
    CHECK(w.most_payload == 4.0 * 1200 * (ranks - 1) / ranks);
  }
}

TEST_CASE("spar_reduce_scatter sends at most 4q(P-1) words in 2 ceil(log2 P) messages, on every input and spread") {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64}) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, std::size_t{60}, std::size_t{601}}) {
      spread const how = every_spread[(static_cast<std::size_t>(ranks) + k) % std::size(every_spread)];
      if (ranks > 9 && k != 60) continue;
      CAPTURE(ranks);
      CAPTURE(k);
      auto const P = static_cast<std::size_t>(ranks);
      topsum::quotas const wanted = topsum::spar_reduce_scatter{}.shares(601, k, P);
      CHECK(wanted.each <= (k + P - 1) / P + 1);
      run_counted(
          ranks, 601, 2,
          [&](std::uint64_t step, int rank) {
            return make_gradient<float>(input::laplace, how, 601, rank, ranks, step);
          },
          [&](std::uint64_t, int, topsum::report const& done) {
            CHECK(done.bytes - done.control_bytes <= 4 * word * wanted.each * (P - 1));
            CHECK(done.control_bytes == 48 * (P - 1));
            CHECK(done.messages <= P - 1 + 2 * rounds_of(ranks));
            CHECK(done.result >= k);
            CHECK(done.result <= k + P);
          },
          topsum::top_k{.k = k}, topsum::spar_reduce_scatter{});
    }
  }
}

TEST_CASE("codecs shorten messages as their sizes say: Elias-Fano with halves under gather_all and interleaved_quota") {
  constexpr std::size_t n = std::size_t{1} << 20;
  constexpr std::size_t k = n / 100;
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  for (int const ranks : {2, 4, 8}) {
    auto const gradient = [&](std::uint64_t step, int rank) {
      return make_gradient<float>(input::laplace, spread::alike, n, rank, ranks, step);
    };
    auto const P = static_cast<double>(ranks);
    words const all = words_of(ranks, n, 1, gradient, topsum::top_k{.k = k}, topsum::gather_all{}, codec);
    CHECK(all.most_payload <= (8.7 + 16) / 32 * k * (P - 1));
    words const quota = words_of(ranks, n, 2, gradient, topsum::top_k{.k = k}, topsum::interleaved_quota{}, codec);
    CHECK(quota.most_payload <= 1.6 * k * (P - 1) / P);
    words const ok = words_of(ranks, n, 2, gradient, topsum::top_k{.k = k}, topsum::ok_topk{}, codec);
    CHECK(ok.sum_payload / 2 <= 2.4 * k * (P - 1) / P);
  }
}

TEST_CASE("the sizes that interleaved_quota announces with Elias-Fano and halves stay in their bound up to 64 ranks") {
  constexpr std::size_t n = std::size_t{1} << 20;
  constexpr std::size_t k = n / 100;
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  for (int ranks = 2; ranks <= 64; ++ranks) {
    auto const P = static_cast<std::size_t>(ranks);
    topsum::quotas const wanted = topsum::interleaved_quota{}.shares(n, k, P);
    std::size_t bytes = 0;
    for (std::size_t r = 1; r < P; ++r) {  // what rank 0 sends to owners, and at most sends round the ring
      std::size_t const m = wanted.where.size_of(r);
      bytes += 2 * codec.bytes<float, std::uint32_t>(wanted.of(r), 0, m);
    }
    CHECK(static_cast<double>(bytes) / 4 <= 1.6 * k * static_cast<double>(P - 1) / static_cast<double>(P));
  }
}

TEST_CASE("under hierarchical only leaders talk between nodes, and send what the outer exchange sends there") {
  constexpr std::size_t n = 601;
  constexpr std::size_t k = 60;
  for (int const ranks : {1, 2, 3, 4, 6, 7, 8, 9, 16}) {
    for (int const each : {1, 2, 3, 8}) {
      CAPTURE(ranks);
      CAPTURE(each);
      topsum::hierarchical const stage{topsum::gather_all{}, topsum::merge_tree{}, {.ranks_per_node = each}};
      topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
        topsum::counting<topsum::local::communicator> counted{comm};
        auto plan = topsum::plan_allreduce<float>(counted, n, topsum::top_k{.k = k}, stage);
        auto x = make_gradient<float>(input::laplace, spread::alike, n, comm.rank(), ranks, 0);
        counted.reset();
        auto const done = plan(std::span<float>{x});
        int const node = comm.rank() / each;
        std::uint64_t within = 0;
        std::uint64_t between = 0;
        for (int r = 0; r < ranks; ++r) {
          auto const to = counted.tally().bytes_to[static_cast<std::size_t>(r)];
          if (r != comm.rank()) (r / each == node ? within : between) += to;
        }
        auto const members = static_cast<std::uint64_t>(std::min(each, ranks - node * each));
        auto const others = static_cast<std::uint64_t>(ranks) - members;
        auto const nodes = static_cast<std::uint64_t>((ranks - 1) / each);  // but this one
        bool const leads = comm.rank() % each == 0;
        // Headers of all, of the node, of the leaders; the selections; the result, once to each child of a tree.
        std::uint64_t const headers = 48;
        std::uint64_t const result = 8 * done.result + 8;
        std::uint64_t rounds = 0;
        while ((std::uint64_t{1} << rounds) < nodes + 1) ++rounds;
        CHECK(between <= headers * others + (leads ? headers * nodes + rounds * (8 * k + 8) : 0));
        CHECK(within <= 2 * headers * (members - 1) + 8 * k * (members - 1) + result * (members - 1) + 8 * members);
        CHECK(done.result <= k);
      });
    }
  }
}
