// SPDX-License-Identifier: BSL-1.0
// 16-bit gradients on the host: every pattern through every instruction set's pass, and sums written back as 16 bits.
#include <doctest/doctest.h>

#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>

#include "oracle.hpp"

using namespace test;
using topsum::bfloat16;
using topsum::half;

namespace {

// Every pattern, in an order that mixes large and small.
template <class T>
std::vector<T> every_pattern() {
  std::vector<T> x;
  for (unsigned i = 0; i < 0x10000U; ++i) x.push_back(T::from_bits(static_cast<std::uint16_t>(i * 40503U)));
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern accumulates to the same bits on every instruction set", T, half, bfloat16) {
  auto const gradient = every_pattern<T>();
  std::size_t const n = gradient.size();
  auto const state = make<float>(pattern::bell, n, 1);
  for (auto set : instruction_sets()) {
    arena<T, topsum::plain_gradient<T>> none{gradient, {}, {}, {}};
    std::vector<float> dense(n);
    host{set}.accumulate(none.source({}, true), std::span{dense});
    auto const plain = evaluate<T>(gradient, none.before, topsum::plain_gradient<T>{});
    CHECK(same_bits(dense, plain.accumulators));
    CHECK(none.agrees(plain));
    CHECK(plain.fault.count == 2U << (std::is_same_v<T, half> ? 10 : 7));

    for (bool in_place : {true, false}) {
      arena<T, topsum::decayed_residual_sum<T>> kept{gradient, {state}, {}, {}};
      topsum::decayed_residual_sum<T> const formula{0.7F};
      host{set}.accumulate(kept.source(formula, in_place), std::span{dense});
      auto const e = evaluate<T>(gradient, kept.before, formula);
      CHECK(same_bits(dense, e.accumulators));
      CHECK(kept.agrees(e));
    }
  }
}

TEST_CASE_TEMPLATE("assigning rounds each value to the nearest and leaves the others alone", T, half, bfloat16) {
  std::size_t const n = 1000;
  std::vector<T> dense(n, T{7.0F});
  std::vector<T> expected = dense;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  auto const x = make<float>(pattern::nonfinite, n, 3);
  for (std::size_t i = 1; i < n; i += 1 + i % 7) {
    indices.push_back(static_cast<std::uint32_t>(i));
    values.push_back(x[i] * 0x1p12F);
    expected[i] = T{values.back()};
  }
  std::size_t count = indices.size();
  topsum::entries_view<host, float, std::uint32_t> const list{indices, values, {&count, 1}};
  host{}.assign(list, std::span<T>{dense});
  CHECK(same_bits(dense, expected));
}

TEST_CASE_TEMPLATE("dense sums are divided and rounded once, for every length", T, half, bfloat16) {
  for (std::size_t n : {0U, 1U, 63U, 64U, 65U, 1000U}) {
    auto const sums = make<float>(pattern::heavy, n, 4);
    std::vector<T> narrow(n + 1, T{9.0F});
    host{}.for_each(
        n, [](std::size_t, T& to, float const& sum) { to = topsum::from_wide<T>(sum / 3); }, std::span<T>{narrow},
        std::span<float const>{sums});
    bool same = narrow[n] == T{9.0F};
    for (std::size_t i = 0; i < n; ++i) same = same && narrow[i].bits() == T{sums[i] / 3}.bits();
    CHECK(same);
  }
}
