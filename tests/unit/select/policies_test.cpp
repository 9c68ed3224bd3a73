// SPDX-License-Identifier: BSL-1.0
// Policies that are more than a scope with a rule, against slow and obvious ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>
#include <utility>
#include <vector>

namespace {

using B = topsum::host;
using list = std::vector<std::pair<std::uint32_t, float>>;

// Runs a policy over gradients in turn, without a residual; what it selects is what `observe` is shown, times `ranks`.
template <class Policy>
class runner {
 public:
  runner(Policy policy, topsum::layout shapes)
      : policy_{std::move(policy)},
        pieces{policy_.pieces(shapes)},
        before{backend, pieces},
        after{backend, pieces},
        out_{backend, pieces.room} {
    policy_.validate();
    backend.reserve_lists<float, std::uint32_t>(2, shapes.size());
  }
  list operator()(std::vector<float> const& gradient) {
    topsum::nonfinite_record fault;
    topsum::source<B, float, topsum::plain_gradient<float>> const from{gradient, {}, {}, {}, {&fault, 1}};
    policy_.select(backend, from, pieces, step_, std::as_const(before), after, out_.view());
    list selected;
    for (std::size_t e = 0; e < out_.view().count[0]; ++e)
      selected.emplace_back(out_.view().indices[e], out_.view().values[e]);
    if constexpr (topsum::observing_policy<Policy, B>) policy_.observe(backend, out_.view(), pieces, step_, after);
    std::swap(before, after);
    ++step_;
    return selected;
  }

 private:
  Policy policy_;

 public:
  B backend;
  topsum::partition pieces;
  typename Policy::template state<B, float> before, after;

 private:
  topsum::entries<B, float, std::uint32_t> out_;
  std::uint64_t step_ = 0;
};
template <class Policy>
runner(Policy, topsum::layout) -> runner<Policy>;

bool comes_first(std::pair<std::uint32_t, float> a, std::pair<std::uint32_t, float> b) {
  return std::abs(a.second) != std::abs(b.second) ? std::abs(a.second) > std::abs(b.second) : a.first < b.first;
}

topsum::layout const tensors{
    {"conv", {6, 5, 3, 3}}, {"bias", {6}}, {"none", {0, 4}}, {"linear", {9, 50}}, {"one", {1}}};

// exact_budget by sorting: every group's share, then the groups with the largest next entry.
template <class Scope>
list by_sorting(Scope const& scope, topsum::layout const& shapes, double density, std::vector<float> const& x) {
  auto const floor_of = [&](std::size_t size) {
    return static_cast<std::size_t>(std::llround(density * 1e9)) * size / 1'000'000'000;
  };
  std::size_t const k = std::max<std::size_t>(1, floor_of(x.size()));
  list all;
  list next;
  for (topsum::piece const& p : scope.pieces(shapes)) {
    for (std::size_t g = 0; g < topsum::group_count(p); ++g) {
      topsum::group const where = topsum::group_at(p, g);
      list group;
      for (std::size_t i = 0; i < where.size(); ++i)
        group.emplace_back(static_cast<std::uint32_t>(where.position(i)), x[where.position(i)]);
      std::ranges::sort(group, comes_first);
      std::size_t const share = floor_of(group.size());
      all.insert(all.end(), group.begin(), group.begin() + static_cast<std::ptrdiff_t>(share));
      if (share < group.size()) next.push_back(group[share]);
    }
  }
  // Equal next magnitudes: the group that comes first, and `next` is in that order.
  std::ranges::stable_sort(next, [](auto a, auto b) { return std::abs(a.second) > std::abs(b.second); });
  next.resize(k - all.size());
  all.insert(all.end(), next.begin(), next.end());
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("exact_budget equals sorting every group and then the next of all") {
  for (topsum::laws::input const kind : topsum::laws::every_input) {
    auto const x = topsum::laws::make_input<float>(kind, tensors.size(), 3);
    for (double const density : {0.0001, 0.01, 0.1, 0.37, 0.9, 1.0}) {
      CAPTURE(density);
      CAPTURE(topsum::laws::to_string(kind));
      auto const check = [&](auto const& scope) {
        runner run{topsum::exact_budget{scope}, tensors};
        list const got = run(x);
        CHECK(got == by_sorting(scope, tensors, density, x));
        CHECK(got.size() ==
              std::max<std::size_t>(1, topsum::density_count(topsum::density_parts(density, ""), x.size())));
      };
      topsum::top_k const rule{.density = density};
      check(topsum::layer_wise{rule});
      check(topsum::all_dimension{rule});
      check(topsum::all_dimension{rule, {.along = topsum::axis::first}});
      check(topsum::chunked{rule, topsum::tiles{.height = 3, .width = 10, .fit = topsum::chunk_fit::largest_divisor}});
    }
  }
}

TEST_CASE("exact_budget refuses what has no budget, in a sentence") {
  auto const says = [](auto const& policy, char const* part) {
    try {
      policy.validate();
      static_cast<void>(policy.pieces(tensors));
    } catch (topsum::error const& e) {
      return e.code() == topsum::errc::bad_argument && std::string{e.what()}.find(part) != std::string::npos;
    }
    return false;
  };
  CHECK(says(topsum::exact_budget{topsum::layer_wise{topsum::top_k{.k = 3}}}, "write a .density"));
  CHECK(says(topsum::exact_budget{topsum::layer_wise{topsum::top_k{.at_most = 3}}}, ".at_most"));
  CHECK(says(topsum::exact_budget{topsum::layer_wise{topsum::top_k{.density = 2}}}, "outside (0, 1]"));
  CHECK(says(topsum::exact_budget{topsum::chunked{
                 topsum::top_k{}, topsum::tiles{.height = 4, .width = 7, .fit = topsum::chunk_fit::pad_last}}},
             "largest_divisor"));
}

TEST_CASE("alternate gives each policy its own steps and keeps the other's state asleep") {
  topsum::reused_threshold const rule{.density = 0.05, .every = 3};
  topsum::reused_threshold const other{.density = 0.2, .every = 2};
  runner both{topsum::alternate{topsum::layer_wise{rule}, topsum::all_dimension{other}}, tensors};
  runner even{topsum::layer_wise{rule}, tensors};
  runner odd{topsum::all_dimension{other}, tensors};
  for (std::uint64_t step = 0; step < 14; ++step) {
    CAPTURE(step);
    auto const x = topsum::laws::make_input<float>(topsum::laws::input::laplace, tensors.size(), step);
    list const expected = step % 2 == 0 ? even(x) : odd(x);
    CHECK(both(x) == expected);
  }
}

TEST_CASE("a rule alone in alternate means the whole gradient") {
  CHECK(topsum::to_text(topsum::alternate{topsum::top_k{.k = 1}, topsum::layer_wise{topsum::top_k{.k = 2}}}) ==
        topsum::to_text(
            topsum::alternate{topsum::global{topsum::top_k{.k = 1}}, topsum::layer_wise{topsum::top_k{.k = 2}}}));
}

namespace {

// A gradient whose k-th magnitude in every tensor is `scale`: magnitudes fall with the position.
std::vector<float> scaled(float scale) {
  std::vector<float> x(tensors.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 2 == 0 ? 1 : -1) * scale / static_cast<float>(1 + i % 89);
  return x;
}

}  // namespace

TEST_CASE("adtopk alternates dimensions with tensors, and its tau follows how the results change") {
  topsum::adtopk const policy{.density = 0.1, .warm_up = 4, .period = 5};
  runner run{policy, tensors};
  runner rows{topsum::all_dimension{topsum::top_k{.density = 0.1}}, tensors};
  runner layers{topsum::layer_wise{topsum::top_k{.density = 0.1}}, tensors};

  // tau by hand: it counts exact steps from the second on.
  float scale = 1;
  float last = 0;
  std::uint64_t tau = 5;
  std::uint64_t since = 0;
  std::uint64_t looks = 0;
  std::map<std::uint64_t, float> const factors{{20, 1.5F}, {40, 1.15F}, {60, 0.93F}, {75, 0.5F}};
  std::uint64_t exact_steps = 0;
  for (std::uint64_t step = 0; step < 120; ++step) {
    CAPTURE(step);
    if (factors.contains(step)) scale *= factors.at(step);
    auto const x = scaled(scale);
    list const got = run(x);
    bool const exact = step % 2 == 1 && (step < 4 || since >= tau || looks == 0);
    if (step % 2 == 0) CHECK(got == rows(x));
    if (exact) {
      CHECK(got == layers(x));
      since = 0;
      ++exact_steps;
      if (looks++ != 0) {
        double const moved = std::abs(scale - last) / scale;
        tau = moved < 0.05 ? tau + 2 : moved < 0.1 ? tau + 1 : tau;
        if (moved > 0.2) tau = tau < 7 ? 5 : tau - 2;
        if (moved > 0.1 && moved <= 0.2) tau = tau < 6 ? 5 : tau - 1;
      }
      last = scale;
    }
    ++since;
    CHECK(run.before.tau == tau);
    CHECK(run.before.since == since);
    CHECK(run.before.looks == looks);
  }
  CHECK(exact_steps >= 6);
  CHECK(tau > 5);
}

TEST_CASE("adtopk keeps no more than k of a tensor between exact steps, cut by magnitude") {
  runner run{topsum::adtopk{.density = 0.1, .warm_up = 0, .period = 9}, tensors};
  runner layers{topsum::layer_wise{topsum::top_k{.density = 0.1}}, tensors};
  static_cast<void>(run(scaled(1)));
  static_cast<void>(run(scaled(1)));  // exact
  static_cast<void>(run(scaled(1)));
  auto const x = scaled(3);
  CHECK(run(x) == layers(x));  // three times too many reach the threshold
}

TEST_CASE("adtopk selects stable tensors by dimension at the end") {
  topsum::adtopk const policy{.density = 0.1, .warm_up = 100, .total_steps = 16};
  runner run{policy, tensors};
  runner rows{topsum::all_dimension{topsum::top_k{.density = 0.1}}, tensors};
  runner layers{topsum::layer_wise{topsum::top_k{.density = 0.1}}, tensors};
  std::size_t const linear = 6 * 5 * 9 + 6;  // where it begins
  std::size_t const after_linear = linear + 450;
  float grows = 1;
  for (std::uint64_t step = 0; step < 16; ++step) {
    CAPTURE(step);
    grows *= 1.2F;
    auto x = scaled(1);
    for (std::size_t i = linear; i < after_linear; ++i) x[i] *= grows;
    list const got = run(x);
    list expected = step % 2 == 0 ? rows(x) : layers(x);
    if (step >= 12 && step % 2 == 1) {  // all but `linear` are stable
      list const by_rows = rows(x);
      std::erase_if(expected, [&](auto const& e) { return e.first < linear || e.first >= after_linear; });
      for (auto const& e : by_rows) {
        if (e.first < linear || e.first >= after_linear) expected.push_back(e);
      }
      std::ranges::sort(expected);
    }
    CHECK(got == expected);
    CHECK(got.size() <= run.pieces.capacity);
  }
}

TEST_CASE("adtopk without a period is refused") {
  CHECK_THROWS_AS((topsum::adtopk{.period = 0}.validate()), topsum::error);
  CHECK_THROWS_AS((topsum::adtopk{.density = 0}.validate()), topsum::error);
}

TEST_CASE("rows of a layout are those of tensors with two extents or more") {
  auto const rows = topsum::all_rows(tensors, topsum::axis::second);
  CHECK(topsum::total_groups(rows) == 6 * 9 + 9);
  CHECK(topsum::total_groups(topsum::all_rows(tensors, topsum::axis::out_channel)) == 6 + 9);
}
