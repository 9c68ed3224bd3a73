// SPDX-License-Identifier: BSL-1.0
// The two forms of a result, reductions, decay, the report, the description.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/oracle.hpp"
#include "support/ranks.hpp"

namespace {

using topsum::plan_allreduce;
using topsum::laws::input;
using topsum::laws::make_gradient;
using topsum::laws::spread;
using comm_t = topsum::local::communicator;

constexpr std::size_t n = 503;
topsum::ok_topk const lively{.boundaries_every = 3, .threshold_every = 4, .balance_above = 1.2};
topsum::reused_threshold const reused{.density = 0.05, .every = 3};

void expect(bool held, char const* sentence) {
  if (!held) throw std::logic_error{sentence};
}

template <class F>
void on_ranks(int ranks, F f) {
  for (auto const& e : test::endings(ranks, f)) CHECK_MESSAGE((e.code == topsum::errc::none && e.rank == -1), e.what);
}

template <class T>
std::vector<T> gradient_of(comm_t const& comm, std::uint64_t step, input kind = input::laplace) {
  return make_gradient<T>(kind, spread::alike, n, comm.rank(), comm.size(), step);
}

// The sparse view, the result beside the gradient and the result in its place say the same.
template <class T, class... S>
void check_forms(int ranks, S const&... stages) {
  on_ranks(ranks, [&](comm_t& comm) {
    auto in_place = plan_allreduce<T>(comm, n, stages...);
    auto beside = plan_allreduce<T>(comm, n, stages...);
    auto sparse = plan_allreduce<T>(comm, n, stages...);
    for (std::uint64_t step = 0; step < 10; ++step) {
      auto const gradient = gradient_of<T>(comm, step, step % 2 == 0 ? input::laplace : input::small_integers);
      auto a = gradient;
      auto const first = in_place(std::span<T>{a});
      std::vector<T> b(n, T{17});
      auto const kept = gradient;
      auto const second = beside(std::span<T const>{gradient}, std::span<T>{b});
      expect(test::same_bits(kept, gradient), "the gradient is only read");
      expect(test::same_bits(a, b), "not in place equals in place");
      auto const view = sparse.sparse(gradient);
      std::vector<T> c(n);
      for (std::size_t e = 0; e < view.size(); ++e) {
        expect(e == 0 || view.indices[e - 1] < view.indices[e], "indices increase");
        c[view.indices[e]] = view.values[e];
      }
      expect(test::same_bits(a, c), "the sparse view equals the dense result");
      expect(view.size() == view.report.result && view.report.bytes == first.bytes && second.bytes == first.bytes,
             "the same report");
    }
  });
}

}  // namespace

TEST_CASE("the sparse view, the result beside the gradient, and the result in its place are the same") {
  check_forms<float>(4, reused, lively);
  check_forms<double>(3, topsum::layer_wise{topsum::top_k{.density = 0.1}}, lively, topsum::sum{});
  check_forms<float>(3, topsum::top_k{.k = 9}, topsum::gather_all{}, topsum::no_residual{});
  check_forms<float>(1, topsum::top_k{.k = 9}, lively);
  check_forms<float>(2, topsum::top_k{.k = 0});
}

TEST_CASE("dense beside the gradient equals dense in its place") {
  on_ranks(4, [](comm_t& comm) {
    auto in_place = plan_allreduce<float>(comm, n, topsum::dense{});
    auto beside = plan_allreduce<float>(comm, n, topsum::dense{});
    auto a = gradient_of<float>(comm, 0);
    auto const gradient = a;
    std::vector<float> b(n);
    in_place(std::span<float>{a});
    beside(std::span<float const>{gradient}, std::span<float>{b});
    expect(test::same_bits(a, b), "not in place equals in place");
    expect(test::same_bits(gradient, gradient_of<float>(comm, 0)), "the gradient is only read");
  });
}

namespace {

template <class... S>
void check_mean(S const&... stages) {
  for (int const ranks : {1, 2, 3, 8}) {
    on_ranks(ranks, [&](comm_t& comm) {
      auto mean = plan_allreduce<float>(comm, n, stages...);
      auto sum = plan_allreduce<float>(comm, n, stages..., topsum::sum{});
      for (std::uint64_t step = 0; step < 5; ++step) {
        auto a = gradient_of<float>(comm, step);
        auto b = a;
        mean(std::span<float>{a});
        sum(std::span<float>{b});
        for (std::size_t i = 0; i < n; ++i) {
          expect(a[i] == b[i] / static_cast<float>(comm.size()), "the mean is the sum divided by the number of ranks");
        }
      }
    });
  }
}

}  // namespace

TEST_CASE("the mean is the sum divided by the number of ranks, and the default") {
  check_mean(topsum::top_k{.density = 0.1}, lively);
  check_mean(topsum::top_k{.density = 0.1}, topsum::gather_all{});
  check_mean(topsum::dense{});
}

TEST_CASE("decay weakens the residual before the gradient is added") {
  constexpr int ranks = 3;
  topsum::global const policy{topsum::top_k{.density = 0.1}};
  for (float const decay : {0.0F, 0.5F, 1.0F}) {
    test::oracle::world<float, topsum::global<topsum::top_k>> oracle{policy, n, ranks, decay};
    std::vector<std::vector<float>> wanted;
    for (std::uint64_t step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> gradients;
      for (int r = 0; r < ranks; ++r)
        gradients.push_back(make_gradient<float>(input::laplace, spread::alike, n, r, ranks, step));
      wanted.push_back(oracle.step(topsum::gather_all{}, gradients).sum);
    }
    on_ranks(ranks, [&](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, n, policy, topsum::error_feedback{.decay = decay}, topsum::gather_all{},
                                        topsum::sum{});
      for (std::uint64_t step = 0; step < 10; ++step) {
        auto x = gradient_of<float>(comm, step);
        plan(std::span<float>{x});
        expect(test::same_bits(x, wanted[step]), "equals the oracle");
      }
    });
  }
}

TEST_CASE("without a residual each step stands for itself") {
  on_ranks(3, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = 20}, topsum::no_residual{}, topsum::gather_all{});
    std::vector<float> first;
    for (int step = 0; step < 3; ++step) {
      auto x = gradient_of<float>(comm, 0);
      plan(std::span<float>{x});
      if (step == 0) first = x;
      expect(test::same_bits(x, first), "the same gradients give the same result");
    }
  });
}

TEST_CASE("the report's fields fit each other") {
  for (int const ranks : {1, 4}) {
    on_ranks(ranks, [&](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, n, reused, lively);
      for (std::uint64_t step = 0; step < 9; ++step) {
        auto x = gradient_of<float>(comm, step);
        auto const r = plan(std::span<float>{x});
        expect(r.step == step && plan.step() == step + 1, "steps count from 0");
        expect(r.n == n && r.nonfinite == 0, "n is the layout's");
        expect(r.selected <= plan.capacity() && r.sent <= r.selected,
               "what is sent was selected, what is selected has room");
        expect(r.result <= plan.capacity(), "at most k entries of the sum");
        expect(r.control_bytes <= r.bytes && (ranks > 1) == (r.bytes > 0) && (ranks > 1) == (r.messages > 0), "bytes");
        expect(r.select_seconds >= 0 && r.exchange_seconds >= 0 && r.apply_seconds >= 0, "seconds");
        expect(r.effective_density() == static_cast<double>(r.selected) / n, "density");
        std::size_t nonzero = 0;
        for (float const v : x) nonzero += v != 0 ? 1U : 0U;
        expect(nonzero <= r.result, "the result has as many entries as the report says, zero sums among them");
        std::ostringstream line;
        line << r;
        expect(line.str() == r.to_string() && line.str().find('\n') == std::string::npos, "one line");
      }
    });
  }
}

TEST_CASE("a plan describes its stages and their parameters in one line, as they are written") {
  on_ranks(1, [](comm_t& comm) {
    auto const text = plan_allreduce<float>(comm, 10, topsum::layer_wise{topsum::top_k{.density = 0.25}},
                                            topsum::ok_topk{.bucket = 3})
                          .describe();
    expect(text ==
               "layer_wise{.rule = top_k{.density = 0.25, .k = default, .at_most = default}}, "
               "error_feedback{.decay = 1, .rollback = false}, raw{}, "
               "ok_topk{.boundaries_every = 64, .threshold_every = 32, .bucket = 3, .balance_above = 4, "
               ".region_capacity = 4}, "
               "mean{}, on_nonfinite::error",
           text.c_str());
    auto const other = plan_allreduce<float>(comm, 10, topsum::dense{}, topsum::on_nonfinite::drop).describe();
    expect(other.find("dense{}, mean{}, on_nonfinite::drop") != std::string::npos, other.c_str());
  });
}

TEST_CASE("the defaults are ok_topk over the largest percent, with error feedback, and the mean") {
  on_ranks(2, [](comm_t& comm) {
    auto const given = plan_allreduce<float>(
        comm, 1000, topsum::global{topsum::top_k{.density = 0.01}}, topsum::error_feedback{}, topsum::raw{},
        topsum::ok_topk{}, topsum::mean{}, topsum::host{}, topsum::index<std::uint32_t>{}, topsum::on_nonfinite::error);
    auto const open = plan_allreduce<float>(comm, 1000);
    expect(given.describe() == open.describe() && open.capacity() == 10, "the defaults");
  });
}

TEST_CASE("contributor_mean divides each entry by the number of ranks that sent it") {
  constexpr std::size_t k = 40;
  for (int const ranks : {1, 2, 3, 8}) {
    on_ranks(ranks, [&](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, n, topsum::top_k{.k = k}, topsum::gather_all{}, topsum::no_residual{},
                                        topsum::contributor_mean{});
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto x = gradient_of<float>(comm, step);
        plan(std::span<float>{x});
        std::vector<float> sums(n);
        std::vector<float> senders(n);
        for (int r = 0; r < comm.size(); ++r) {
          auto const theirs = make_gradient<float>(input::laplace, spread::alike, n, r, comm.size(), step);
          test::oracle::sparse<float> all;
          for (std::size_t i = 0; i < n; ++i) all.push_back({i, theirs[i]});
          for (auto const& [i, value] : test::oracle::first_of(all, k)) {
            sums[i] += value;
            senders[i] += 1;
          }
        }
        for (std::size_t i = 0; i < n; ++i)
          expect(x[i] == (senders[i] == 0 ? 0 : sums[i] / senders[i]), "sum over senders, by their number");
      }
    });
  }
}

TEST_CASE("contributor_mean leaves in residuals what mean leaves there") {
  on_ranks(4, [](comm_t& comm) {
    auto by_senders = plan_allreduce<float>(comm, n, topsum::gather_all{}, topsum::contributor_mean{});
    auto by_all = plan_allreduce<float>(comm, n, topsum::gather_all{});
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto x = gradient_of<float>(comm, step);
      auto y = x;
      by_senders(std::span<float>{x});
      by_all(std::span<float>{y});
      expect(std::ranges::equal(by_senders.residual(), by_all.residual()), "the same residuals");
    }
  });
}

TEST_CASE("the report says where a scope's promise ended, and which exchange it was") {
  on_ranks(3, [](comm_t& comm) {
    topsum::layout const shapes{{"weight", {20, 20}}, {"bias", {20}}};
    auto const report_of = [&](auto const&... stages) {
      auto plan = plan_allreduce<float>(comm, shapes, stages...);
      std::vector<float> x(shapes.size(), 1.0F);
      return plan(std::span<float>{x});
    };
    topsum::layer_wise const layers{topsum::top_k{.density = 0.1}};
    auto const ended = report_of(layers, topsum::ok_topk{});
    expect(!ended.scope_kept && ended.exchange == "ok_topk", "owners see magnitudes alone");
    expect(ended.to_string().find("promise ended") != std::string::npos, "and the report's line says so");
    expect(!report_of(topsum::all_dimension{topsum::top_k{}}, topsum::interleaved_quota{}).scope_kept, "quotas cut");
    expect(report_of(layers, topsum::gather_all{}).scope_kept, "all is applied");
    expect(report_of(layers, topsum::aligned{topsum::leader{}}).scope_kept, "the leader's is applied");
    expect(!report_of(layers, topsum::aligned{topsum::owners{}}).scope_kept, "owners cut");
    expect(report_of(topsum::top_k{}, topsum::ok_topk{}).scope_kept, "there is one group");
    auto const dense = report_of(topsum::dense{});
    expect(dense.scope_kept && dense.exchange == "dense" && !dense.predicted_seconds, "dense");
  });
}

TEST_CASE("a million values over 4 ranks: results alike on all ranks, nothing lost") {
  constexpr std::size_t size = 1000000;
  constexpr std::size_t k = 10000;
  std::vector<std::vector<float>> results(4);
  std::vector<std::vector<float>> residuals(4);
  std::vector<std::vector<float>> applied(4);
  on_ranks(4, [&](comm_t& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto plan = plan_allreduce<float>(comm, size, topsum::top_k{.k = k},
                                      topsum::ok_topk{.boundaries_every = 2, .threshold_every = 2}, topsum::sum{});
    applied[r].assign(size, 0.0F);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<float> x(size);
      for (std::size_t i = 0; i < size; ++i) x[i] = static_cast<float>((i * (7 + r) + step * 31) % 257) - 128;
      auto const done = plan(std::span<float>{x});
      expect(done.result <= k && done.result > 0, "at most k entries");
      for (std::size_t i = 0; i < size; ++i) applied[r][i] += x[i];
      results[r] = std::move(x);
    }
    residuals[r].assign(plan.residual().begin(), plan.residual().end());
  });
  bool alike = true;
  bool whole = true;
  for (std::size_t r = 1; r < 4; ++r) alike = alike && results[r] == results[0] && applied[r] == applied[0];
  for (std::size_t i = 0; i < size; ++i) {
    float sum = applied[0][i];
    float owed = 0;
    for (std::size_t r = 0; r < 4; ++r) {
      sum += residuals[r][i];
      for (std::size_t step = 0; step < 3; ++step) owed += static_cast<float>((i * (7 + r) + step * 31) % 257) - 128;
    }
    whole = whole && sum == owed;
  }
  CHECK(alike);
  CHECK(whole);
}
