// SPDX-License-Identifier: BSL-1.0
// Plans over 16-bit gradients: sums are wide, results rounded once; overflow, NaN, ranks with different types.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using topsum::bfloat16;
using topsum::errc;
using topsum::half;
using topsum::on_nonfinite;
using topsum::plan_allreduce;
using topsum::to_wide;
using comm_t = topsum::local::communicator;

constexpr std::size_t n = 211;
constexpr float infinity = std::numeric_limits<float>::infinity();
topsum::ok_topk const lively{.boundaries_every = 2, .threshold_every = 3};

void expect(bool held, char const* sentence) {
  if (!held) throw std::logic_error{sentence};
}

template <class F>
void on_ranks(int ranks, F f) {
  for (auto const& e : test::endings(ranks, f)) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
}

template <class T>
std::vector<T> gradient_of(comm_t const& comm, std::uint64_t step) {
  return topsum::laws::make_gradient<T>(topsum::laws::input::laplace, topsum::laws::spread::alike, n, comm.rank(),
                                        comm.size(), step);
}

// Sums that 16 bits would lose: the larger value swallows each of the smaller ones.
template <class T, class... S>
void check_wide_sums(float large, S const&... stages) {
  on_ranks(3, [&](comm_t& comm) {
    auto plan = plan_allreduce<T>(comm, 5, topsum::sum{}, stages...);
    std::vector<T> x(5, T{comm.rank() == 0 ? large : 1.0F});
    plan(std::span<T>{x});
    for (T const value : x) expect(value == T{large + 2}, "the small values count");
    expect(!(T{large + 2} == T{large}), "and can be seen");
    if constexpr (decltype(plan)::is_sparse) expect(plan.residual()[0] == 0, "nothing is left over");
  });
}

template <class T, class... S>
void check_forms(int ranks, S const&... stages) {
  on_ranks(ranks, [&](comm_t& comm) {
    auto in_place = plan_allreduce<T>(comm, n, stages...);
    auto beside = plan_allreduce<T>(comm, n, stages...);
    auto sparse = plan_allreduce<T>(comm, n, stages...);
    for (std::uint64_t step = 0; step < 7; ++step) {
      auto const gradient = gradient_of<T>(comm, step);
      auto a = gradient;
      in_place(std::span<T>{a});
      std::vector<T> b(n, T{17.0F});
      beside(std::span<T const>{gradient}, std::span<T>{b});
      expect(test::same_bits(a, b) && test::same_bits(gradient, gradient_of<T>(comm, step)),
             "not in place equals in place, and the gradient is only read");
      auto const view = sparse.sparse(gradient);
      static_assert(std::is_same_v<decltype(view.values), std::span<float const>>);
      std::vector<T> c(n);
      for (std::size_t e = 0; e < view.size(); ++e) c[view.indices[e]] = T{view.values[e]};
      expect(test::same_bits(a, c), "the sparse view, rounded, equals the dense result");
    }
  });
}

}  // namespace

TEST_CASE("16-bit gradients are summed in float") {
  check_wide_sums<half>(2048, topsum::dense{});
  check_wide_sums<half>(2048, topsum::gather_all{}, topsum::top_k{.density = 1});
  check_wide_sums<half>(2048, lively, topsum::top_k{.density = 1});
  check_wide_sums<bfloat16>(256, topsum::dense{});
  check_wide_sums<bfloat16>(256, lively, topsum::top_k{.density = 1});
}

TEST_CASE_TEMPLATE("the forms of a 16-bit result are the same", T, half, bfloat16) {
  check_forms<T>(3, topsum::top_k{.density = 0.1}, lively);
  check_forms<T>(2, topsum::reused_threshold{.density = 0.1, .every = 3}, topsum::gather_all{}, topsum::sum{});
}

TEST_CASE("the residual of a half gradient is a float: what is too small for the result is not lost") {
  on_ranks(2, [](comm_t& comm) {
    auto plan = plan_allreduce<half>(comm, 2, topsum::top_k{.k = 1}, topsum::gather_all{}, topsum::sum{});
    for (int step = 0; step < 4; ++step) {
      std::vector<half> x{half{2048.0F}, half{step == 0 ? 1024.0F : 0.25F}};  // the second never travels
      plan(std::span<half>{x});
    }
    expect(plan.residual()[1] == 1024.75F, "1024 + 0.75, which a half cannot hold");
  });
}

TEST_CASE("a sum that is too large for a half is infinite in the dense result, and as it is in the sparse one") {
  on_ranks(3, [](comm_t& comm) {
    auto const check = [&](auto const& exchange) {
      auto plan = plan_allreduce<half>(comm, 3, topsum::top_k{.k = 3}, exchange, topsum::sum{});
      std::vector<half> const gradient{half{60000.0F}, half{-60000.0F}, half{1.0F}};
      auto x = gradient;
      auto const report = plan(std::span<half>{x});
      expect(to_wide(x[0]) == infinity && to_wide(x[1]) == -infinity && to_wide(x[2]) == 3, "infinite where too large");
      expect(report.nonfinite == 0, "no gradient was at fault");
      if constexpr (decltype(plan)::is_sparse) {
        auto const view = plan.sparse(gradient);
        expect(view.values[0] == 180000.0F && view.values[1] == -180000.0F && view.values[2] == 3, "float as it is");
        for (float const r : plan.residual()) expect(r == 0, "what was applied left the residual");
      }
      auto mean = plan_allreduce<half>(comm, 3, topsum::top_k{.k = 3}, exchange);
      x = gradient;
      mean(std::span<half>{x});
      expect(test::same_bits(x, gradient), "the mean divides before it rounds");
    };
    check(topsum::dense{});
    check(topsum::gather_all{});
    check(lively);
  });
}

TEST_CASE("infinity and NaN in a half gradient are an error on every rank, or dropped, or told") {
  for (float const value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    auto const all = test::endings(3, [&](comm_t& comm) {
      auto plan = plan_allreduce<half>(comm, n, lively);
      auto x = gradient_of<half>(comm, 0);
      if (comm.rank() == 1) x[33] = half{value};
      plan(std::span<half>{x});
    });
    for (auto const& e : all) {
      CHECK(e.code == errc::nonfinite);
      CHECK(e.rank == 1);
      CHECK_MESSAGE(e.says("position 33"), e.what);
    }
    on_ranks(3, [&](comm_t& comm) {
      auto const check = [&](auto const& exchange) {
        auto dropping = plan_allreduce<half>(comm, n, exchange, on_nonfinite::drop);
        auto telling = plan_allreduce<half>(comm, n, exchange, on_nonfinite::propagate);
        auto a = gradient_of<half>(comm, 0);
        if (comm.rank() == 1) a[33] = half{value};
        auto b = a;
        auto const report = dropping(std::span<half>{a});
        telling(std::span<half>{b});
        expect(report.nonfinite == (comm.rank() == 1 ? 1U : 0U), "the report counts it");
        for (std::size_t i = 0; i < n; ++i) {
          expect(topsum::is_finite(to_wide(a[i])), "dropped values do not travel");
          expect(i == 33 ? std::isnan(to_wide(b[i])) : a[i] == b[i], "NaN where it came from");
        }
      };
      check(lively);
      check(topsum::dense{});
    });
  }
}

TEST_CASE("on the wire an entry of a half gradient is an index and a float, and dense sums are floats") {
  on_ranks(2, [](comm_t& comm) {
    auto plan = plan_allreduce<half>(comm, n, topsum::top_k{.k = 20}, topsum::gather_all{});
    auto x = gradient_of<half>(comm, 0);
    auto const sparse = plan(std::span<half>{x});
    expect(sparse.bytes - sparse.control_bytes == 20 * 8, "8 bytes an entry");
    auto dense = plan_allreduce<half>(comm, 200, topsum::dense{});
    std::vector<half> y(200);
    auto const whole = dense(std::span<half>{y});
    expect(whole.bytes - whole.control_bytes == 200 * 4, "4 bytes a value");
    expect(whole.dense_bytes == 200 * 2, "the comparison is with an allreduce of halves");
  });
}

TEST_CASE("ranks with half and with bfloat16 are a mismatch") {
  auto const all = test::endings(2, [](comm_t& comm) {
    if (comm.rank() == 0) {
      static_cast<void>(plan_allreduce<half>(comm, n));
    } else {
      static_cast<void>(plan_allreduce<bfloat16>(comm, n));
    }
  });
  for (auto const& e : all) {
    CHECK(e.code == errc::mismatch);
    CHECK_MESSAGE(e.says("value or index type"), e.what);
  }
}

#if defined(__FLT16_MANT_DIG__)
TEST_CASE("ranks may mix types of one format, and get the same bits") {
  std::vector<std::vector<std::uint16_t>> results(2);
  on_ranks(2, [&](comm_t& comm) {
    auto const run = [&]<class T>(T) {
      auto plan = plan_allreduce<T>(comm, n, lively, topsum::top_k{.density = 0.2});
      auto& mine = results[static_cast<std::size_t>(comm.rank())];
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto x = gradient_of<T>(comm, step);
        plan(std::span<T>{x});
        for (T const value : x) mine.push_back(std::bit_cast<std::uint16_t>(value));
      }
    };
    comm.rank() == 0 ? run(half{}) : run(_Float16{});
  });
  CHECK(results[0].size() == 4 * n);
  CHECK(results[0] == results[1]);
}
#endif
