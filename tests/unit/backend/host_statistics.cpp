// SPDX-License-Identifier: BSL-1.0
// Verbs that peek, and the one that reads accumulators at given positions, against slow and obvious versions.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <topsum/core/moments.hpp>
#include <topsum/core/random.hpp>

#include "oracle.hpp"

using namespace test;
using topsum::decayed_residual_sum;
using topsum::moments;
using topsum::sampling;

namespace {

constexpr std::size_t any_size[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 997, 4095, 4096, 4097, 8192, 12289};

template <class T>
arena<T, decayed_residual_sum<T>> input(pattern what, std::size_t n) {
  arena<T, decayed_residual_sum<T>> a;
  a.gradient = make<T>(what, n, 1);
  a.before[0] = what == pattern::bell || what == pattern::nonfinite ? make<T>(pattern::bell, n, 2)
                                                                    : std::vector<T>(n, T{0});
  return a;
}

// Pieces of every kind of grid over about 5000 values, with gaps.
std::vector<piece> grids() {
  std::vector<piece> pieces{{0, 100, 3, 3},
                            {100, 0, 0, 0},
                            {101, 700, 2, 2, {1, 700, 70}},
                            {801, 1000, 5, 5, {1, 1000, 64}},       // the last group has 40 values
                            {1810, 16 * 9 * 4, 2, 2, {16, 9, 1}},   // rows of a convolution
                            {2400, 20 * 30, 7, 7, {20, 30, 20}},    // tiles, the last one narrow
                            {3000, 0, 0, 0, {4, 5, 5}},             // no values, no groups
                            {3000, 3 * 7 * 50, 21, 21, {3, 7, 7}},  // all of every group
                            {4100, 900, 0, 0, {1, 900, 300}}};
  for (piece const& p : pieces) REQUIRE(topsum::is_well_formed(p));
  return pieces;
}

// The sums in the order that `moments` states, and in no other way.
template <class R>
moments slow_moments(std::vector<R> const& x, topsum::group const& g, R threshold) {
  moments all;
  for (std::size_t first = 0; first < g.size(); first += moments::block) {
    std::vector<moments> lane(moments::lanes);
    for (std::size_t i = first; i < std::min(g.size(), first + moments::block); ++i) {
      auto const v = static_cast<double>(x[g.position(i)]);
      if (v == 0 || std::abs(v) < std::abs(static_cast<double>(threshold))) continue;
      moments& m = lane[(i - first) % moments::lanes];
      m.count += 1;
      m.sum += v;
      m.sum_magnitude += std::abs(v);
      double const volatile square = v * v;
      m.sum_squares += square;
      int e = 0;
      double const half = std::frexp(std::abs(v), &e);
      m.mantissa *= 2 * half;
      m.exponent += e - 1;
      m.largest = std::max(m.largest, std::abs(v));
    }
    auto const normalise = [](moments& m) {
      int e = 0;
      m.mantissa = 2 * std::frexp(m.mantissa, &e);
      m.exponent += e - 1;
    };
    for (moments& m : lane) normalise(m);
    auto const join = [](moments& a, moments const& b) {
      a.count += b.count;
      a.sum += b.sum;
      a.sum_magnitude += b.sum_magnitude;
      a.sum_squares += b.sum_squares;
      a.mantissa *= b.mantissa;
      a.exponent += b.exponent;
      a.largest = std::max(a.largest, b.largest);
    };
    for (std::size_t width = moments::lanes / 2; width != 0; width /= 2) {
      for (std::size_t l = 0; l < width; ++l) join(lane[l], lane[l + width]);
    }
    normalise(lane[0]);
    join(all, lane[0]);
    normalise(all);
  }
  return all;
}

template <class R>
std::vector<R> magnitudes(std::vector<R> const& x, topsum::group const& g) {
  std::vector<R> all;
  for (std::size_t i = 0; i < g.size(); ++i) all.push_back(std::abs(x[g.position(i)]));
  return all;
}

// Equal, or both not a number: sums of large doubles overflow either way.
bool alike(moments a, moments b) {
  for (double moments::*sum : {&moments::sum, &moments::sum_magnitude, &moments::sum_squares}) {
    if (std::isnan(a.*sum) && std::isnan(b.*sum)) a.*sum = b.*sum = 0;
  }
  return a == b;
}

template <class T, class Formula>
std::size_t wrong_moments(arena<T, Formula>& a, Formula formula, std::vector<piece> const& pieces) {
  using R = wide_t<T>;
  auto const e = evaluate<T, Formula>(a.gradient, a.before, formula);
  std::vector<topsum::group> groups;
  for (piece const& p : pieces) {
    for (std::size_t i = 0; i < topsum::group_count(p); ++i) groups.push_back(topsum::group_at(p, i));
  }
  std::size_t wrong = 0;
  for (int scale : {0, 1, 2}) {
    std::vector<R> thresholds;
    std::vector<moments> expected;
    for (topsum::group const& g : groups) {
      auto const sizes = magnitudes(e.accumulators, g);
      R const most = sizes.empty() ? R{0} : *std::max_element(sizes.begin(), sizes.end());
      thresholds.push_back(scale == 0 ? R{0} : scale == 1 ? most / 2 : -most);  // the sign does not matter
      expected.push_back(slow_moments(e.accumulators, g, thresholds.back()));
    }
    for (auto set : instruction_sets()) {
      std::vector<moments> got(groups.size());
      host{set}.moments(a.source(formula, true), std::span{pieces}, std::span<R const>{thresholds}, std::span{got});
      bool right = a.fault.count == 0 && std::equal(got.begin(), got.end(), expected.begin(), alike);
      for (std::size_t j = 0; j < Formula::states; ++j) right = right && same_bits(a.after[j], a.before[j]);
      wrong += right ? 0U : 1U;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("moments equal sums in the stated order, on every instruction set and input", T, float, double) {
  for (std::size_t n : any_size) {
    for (pattern what : patterns) {
      CAPTURE(n);
      CAPTURE(static_cast<int>(what));
      auto a = input<T>(what, n);
      CHECK(wrong_moments(a, decayed_residual_sum<T>{static_cast<T>(0.7)}, {{0, n, 0, 0}}) == 0);
    }
  }
}

TEST_CASE_TEMPLATE("moments of rows, strided rows and tiles are those of their elements", T, float, double) {
  for (pattern what : patterns) {
    auto a = input<T>(what, 5003);
    CHECK(wrong_moments(a, decayed_residual_sum<T>{}, grids()) == 0);
    arena<T, topsum::plain_gradient<T>> plain{make<T>(what, 5003, 8), {}, {}, {}};
    CHECK(wrong_moments(plain, topsum::plain_gradient<T>{}, grids()) == 0);
    arena<T, momentum<T>> two{make<T>(what, 5003, 8), {a.before[0], a.before[0]}, {}, {}};
    CHECK(wrong_moments(two, momentum<T>{static_cast<T>(0.9)}, grids()) == 0);
  }
}

TEST_CASE("the moments' product gives the mean of logarithms without one an element") {
  std::size_t const n = 100'000;
  auto a = input<float>(pattern::heavy, n);
  auto const e = evaluate<float>(a.gradient, a.before, decayed_residual_sum<float>{});
  double logs = 0;
  for (float x : e.accumulators) logs += x == 0 ? 0 : std::log(std::abs(static_cast<double>(x)));
  std::vector<piece> const pieces{{0, n, 0, 0}};
  float const zero = 0;
  moments m;
  host{}.moments(a.source({}, true), std::span{pieces}, std::span{&zero, 1}, std::span{&m, 1});
  CHECK(std::log(m.mantissa) + static_cast<double>(m.exponent) * std::log(2.0) == doctest::Approx(logs));
}

TEST_CASE("a threshold that is not finite leaves its group unread") {
  std::vector<piece> const pieces{{0, 50, 1, 1}, {50, 50, 1, 1}};
  auto a = input<float>(pattern::equal, 100);
  std::vector<moments> got(2, moments{.count = 9});
  std::vector<float> const thresholds{std::numeric_limits<float>::infinity(), 1.0F};
  host{}.moments(a.source({}, true), std::span{pieces}, std::span<float const>{thresholds}, std::span{got});
  CHECK(got[0] == moments{});
  CHECK(got[1].count == 50);
}

TEST_CASE_TEMPLATE("the sampled k-th magnitude is that of a sorted sample", T, float, double) {
  std::vector<std::vector<piece>> cases{grids()};
  for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
    for (std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{40}, n / 2, n})
      cases.push_back({{0, n, std::min(k, n), std::min(k, n)}});
  }
  for (pattern what : patterns) {
    auto a = input<T>(what, 5003);
    auto const e = evaluate<T>(a.gradient, a.before, decayed_residual_sum<T>{});
    for (auto const& pieces : cases) {
      for (sampling const how : {sampling{10'000'000, 3}, sampling{1, 4}, sampling{1'000'000'000, 5}}) {
        std::vector<T> expected;
        for (piece const& p : pieces) {
          for (std::size_t i = 0; i < topsum::group_count(p); ++i) {
            topsum::group const g = topsum::group_at(p, i);
            std::size_t const k = std::min(p.count, g.size());
            std::vector<T> sample;
            std::size_t const m = k == 0 ? 0 : how.elements(g.size(), k);
            for (std::size_t j = 0; j < m; ++j)
              sample.push_back(std::abs(e.accumulators[g.position(how.places(expected.size(), g.size(), m)[j])]));
            std::sort(sample.rbegin(), sample.rend());
            expected.push_back(k == 0 ? T{0} : sample[sampling::rank(m, g.size(), k) - 1]);
          }
        }
        for (auto set : instruction_sets()) {
          host backend{set, 0};
          backend.template reserve_selection<T, std::uint32_t>(std::span{pieces});
          std::size_t const reserved = backend.allocated_bytes();
          std::vector<T> got(expected.size(), T{-1});
          backend.sample_kth(a.source({}, true), std::span{pieces}, how, std::span{got});
          CHECK(same_bits(got, expected));
          CHECK(same_bits(a.after[0], a.before[0]));
          CHECK(backend.allocated_bytes() == reserved);
        }
      }
    }
  }
}

TEST_CASE("a sample holds two of the largest k on average, has no element twice, and changes with the seed") {
  sampling const how{10'000'000, 1};
  CHECK(how.elements(100'000, 1000) == 1000);
  CHECK(how.elements(100'000, 10) == 20'000);
  CHECK(how.elements(100, 60) == 4);
  CHECK(how.elements(7, 1) == 7);
  CHECK(sampling::rank(1000, 100'000, 1000) == 10);
  CHECK(sampling::rank(1001, 100'000, 1000) == 11);
  CHECK(sampling::rank(7, 7, 1) == 1);
  CHECK(sampling::rank(7, 7, 7) == 7);
  std::vector<std::size_t> first;
  std::vector<std::size_t> second;
  for (std::size_t j = 0; j < 300; ++j) {
    first.push_back(how.places(5, 1000, 300)[j]);
    second.push_back(sampling{how.parts, 2}.places(5, 1000, 300)[j]);
  }
  CHECK(std::is_sorted(first.begin(), first.end()));
  CHECK(std::adjacent_find(first.begin(), first.end()) == first.end());
  CHECK(first.back() < 1000);
  CHECK(first != second);
}

TEST_CASE("strata cover all places, differ by at most one, and turn with their offset") {
  for (std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{100}, std::size_t{1} << 45}) {
    for (std::size_t parts : {std::size_t{1}, std::size_t{3}, std::size_t{7}, std::size_t{99}}) {
      if (parts > size) continue;
      for (std::size_t offset : {std::size_t{0}, parts / 2, parts - 1}) {
        topsum::strata const cut{size, parts, offset};
        CHECK(cut.begin(0) == 0);
        CHECK(cut.begin(parts) == size);
        for (std::size_t j = 0; j < parts; ++j) {
          std::size_t const length = cut.begin(j + 1) - cut.begin(j);
          CHECK((length == size / parts || length == size / parts + 1));
          CHECK(cut.draw(j, 0) == cut.begin(j));
          CHECK(cut.draw(j, ~std::uint64_t{0}) < cut.begin(j + 1));
          if (length >> 32 == 0) CHECK(cut.draw(j, ~std::uint64_t{0}) == cut.begin(j + 1) - 1);
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("select_at gives the accumulators at its positions and evaluates everything once", T, float,
                   double) {
  for (std::size_t n : any_size) {
    for (pattern what : {pattern::bell, pattern::nonfinite, pattern::all_bad, pattern::zeros}) {
      auto a = input<T>(what, n);
      auto const e = evaluate<T>(a.gradient, a.before, decayed_residual_sum<T>{});
      for (std::size_t stride : {std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{5000}, n + 1}) {
        room<T, std::uint32_t> out{n};
        list_of<T, std::uint32_t> expected;
        for (std::size_t i = stride / 2; i < n; i += stride) {
          expected.indices.push_back(static_cast<std::uint32_t>(i));
          expected.values.push_back(e.accumulators[i]);
        }
        for (auto set : instruction_sets()) {
          std::copy(expected.indices.begin(), expected.indices.end(), out.indices.begin());
          out.count = expected.indices.size();
          host{set}.select_at(a.source({}, true), out.view());
          CHECK(out.list() == expected);
          CHECK(out.guarded());
          CHECK(a.agrees(e));
        }
      }
    }
  }
}
