// SPDX-License-Identifier: BSL-1.0
// What a plan allocates: n values (2n with rollback) and O(k), once; a call allocates nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

// Sanitizers bring an operator new of their own: under them nothing is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED
#endif
#endif

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

#ifndef TEST_SANITIZED
namespace {

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  if (alignment == 0) {
    if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  } else if (void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)) {
    return p;
  }
  throw std::bad_alloc{};
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size, 0); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace {

// The most bytes that a rank's plan allocated.
template <class... S>
std::size_t bytes_of(int ranks, topsum::layout const& shapes, S const&... stages) {
  auto const each = topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    return topsum::plan_allreduce<float>(comm, shapes, stages...).memory_bytes();
  });
  return *std::max_element(each.begin(), each.end());
}

constexpr std::size_t entry_bytes = 8;
// Candidates of a selection: see `host`.
constexpr std::size_t scratch_entries = topsum::host::default_slack;
constexpr std::size_t constant = std::size_t{1} << 17;  // radix scratch, histogram bins
constexpr std::size_t a_peer = 64;

// Allocations of all ranks in a call, once every kind of step has been seen. Gradients are made before.
template <class Stage, class... S>
std::size_t allocations_of_calls(int ranks, Stage const& exchange, topsum::on_nonfinite how, bool poisoned,
                                 S const&... stages) {
  constexpr std::size_t n = 2003;
  constexpr std::size_t warm = 24;
  constexpr std::size_t steps = 48;
  std::size_t count = 0;
  topsum::local::run(ranks, [&](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<float>(comm, n, exchange, how, stages...);
    std::size_t const held = plan.memory_bytes();
    std::vector<std::vector<float>> gradients;
    for (std::size_t step = 0; step < steps; ++step) {
      gradients.push_back(topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike,
                                                             n, comm.rank(), ranks, step));
      if (poisoned) gradients.back()[step] = std::numeric_limits<float>::quiet_NaN();
    }
    std::size_t before = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      // Everybody has gone through the step before, and nobody can be more than one step ahead.
      if (step == warm && comm.rank() == 0) before = allocations;
      if (step + 1 == steps && comm.rank() == 0) count = allocations - before;
      static_cast<void>(plan(std::span<float>{gradients[step]}));
    }
    if (comm.rank() == 0 && plan.memory_bytes() != held) count += 1000000;
  });
  return count;
}

}  // namespace

TEST_CASE("ok_topk's memory is n values (2n with rollback), 26k entries, selection scratch, and O(P)") {
  constexpr std::size_t n = 1000000;
  for (int const ranks : {4, 8, 64}) {
    for (std::size_t const k : {std::size_t{10}, std::size_t{1000}, std::size_t{10000}}) {
      CAPTURE(ranks);
      CAPTURE(k);
      // At P = 64 a message holds 64 entries at least.
      std::size_t const entries = 26 * k + scratch_entries + (ranks == 64 ? 64 * std::size_t{150} : 0);
      std::size_t const beside = entries * entry_bytes + static_cast<std::size_t>(ranks) * a_peer + constant;
      topsum::top_k const rule{.k = k};
      CHECK(bytes_of(ranks, n, rule, topsum::error_feedback{}) <= n * 4 + beside);
      CHECK(bytes_of(ranks, n, rule, topsum::error_feedback{.rollback = true}) <= 2 * n * 4 + beside);
      CHECK(bytes_of(ranks, n, rule, topsum::no_residual{}) <= beside);
      CHECK(bytes_of(ranks, n, rule, topsum::momentum_correction{}) <= 2 * n * 4 + beside);
      CHECK(bytes_of(ranks, n, rule, topsum::momentum_correction{.rollback = true}) <= 4 * n * 4 + beside);
    }
  }
}

TEST_CASE("ok_topk's memory does not grow with n beyond the residual") {
  topsum::top_k const rule{.k = 1000};
  std::size_t const small = bytes_of(4, 1000000, rule) - 1000000 * 4;
  std::size_t const large = bytes_of(4, 4000000, rule) - 4000000 * 4;
  CHECK(small == large);
}

TEST_CASE("gather_all's memory is n values and O(kP); dense takes a ring's scratch") {
  constexpr std::size_t n = 1000000;
  CHECK(bytes_of(8, n, topsum::top_k{.k = 1000}, topsum::gather_all{}) <=
        n * 4 + (5 * 8 * std::size_t{1000} + scratch_entries) * entry_bytes + constant);
  CHECK(bytes_of(8, n, topsum::dense{}) <= n / 8 * 4 + constant);
}

TEST_CASE("a call allocates nothing, on any rank, through refreshes, boundaries and balance") {
  topsum::ok_topk const lively{.boundaries_every = 3, .threshold_every = 4, .balance_above = 1.2};
  topsum::reused_threshold const reused{.density = 0.05, .every = 4};
  topsum::interleaved_quota const collecting{.dropped = topsum::interleaved_quota::residual_rule::collection};
  for (int const ranks : {1, 3, 6}) {
    CAPTURE(ranks);
    for (auto const how : {topsum::on_nonfinite::error, topsum::on_nonfinite::drop, topsum::on_nonfinite::propagate}) {
      bool const poisoned = how != topsum::on_nonfinite::error;
      CHECK(allocations_of_calls(ranks, lively, how, poisoned, reused) == 0);
      CHECK(allocations_of_calls(ranks, topsum::gather_all{}, how, poisoned, topsum::top_k{.density = 0.05}) == 0);
      CHECK(allocations_of_calls(ranks, topsum::dense{}, how, poisoned) == 0);
      CHECK(allocations_of_calls(ranks, lively, how, poisoned, topsum::momentum_correction{.clip = 1.0}) == 0);
      CHECK(allocations_of_calls(ranks, topsum::interleaved_quota{}, how, poisoned, topsum::top_k{.density = 0.05}) ==
            0);
      CHECK(allocations_of_calls(ranks, collecting, how, poisoned, reused) == 0);
      CHECK(allocations_of_calls(ranks, lively, how, poisoned,
                                 topsum::adtopk{.density = 0.05, .period = 3, .total_steps = 48},
                                 topsum::row_coverage{}) == 0);
      CHECK(allocations_of_calls(
                ranks, topsum::gather_all{}, how, poisoned,
                topsum::alternate{reused, topsum::exact_budget{topsum::layer_wise{topsum::top_k{}}}}) == 0);
    }
  }
}

TEST_CASE("interleaved_quota's memory is n values, 25k entries, selection scratch, and O(P)") {
  constexpr std::size_t n = 1000000;
  for (int const ranks : {4, 8, 64}) {
    for (std::size_t const k : {std::size_t{1000}, std::size_t{10000}}) {
      CAPTURE(ranks);
      CAPTURE(k);
      std::size_t const beside = (25 * k + scratch_entries + static_cast<std::size_t>(ranks) * 100) * entry_bytes +
                                 static_cast<std::size_t>(ranks) * 4 * a_peer + constant;
      CHECK(bytes_of(ranks, n, topsum::top_k{.k = k}, topsum::interleaved_quota{}) <= n * 4 + beside);
    }
  }
}
