// SPDX-License-Identifier: BSL-1.0
// What rules that estimate a threshold must select, from sorted magnitudes and plain sums.
#ifndef TOPSUM_TESTS_SUPPORT_RULE_ORACLE_HPP
#define TOPSUM_TESTS_SUPPORT_RULE_ORACLE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <topsum/core/random.hpp>
#include <topsum/select/bisected_threshold.hpp>
#include <topsum/select/exponential_threshold.hpp>
#include <topsum/select/fixed_threshold.hpp>
#include <topsum/select/gaussian_threshold.hpp>
#include <topsum/select/sampled_threshold.hpp>
#include <vector>

#include "support/oracle.hpp"

namespace test::oracle {

// One group in one step, and what is kept of it from step to step.
template <class T>
struct estimate {
  target where;
  std::size_t group;  // among all groups
  std::uint64_t step;
  std::vector<T> values;  // in order
  std::vector<T> sizes;   // magnitudes that are not zero, largest first

  estimate(std::vector<T> const& dense, target const& t, std::size_t index, std::uint64_t at)
      : where{t}, group{index}, step{at} {
    for (auto const& e : part_of(dense, t.group)) {
      values.push_back(e.value);
      if (e.value != 0) sizes.push_back(std::abs(e.value));
    }
    std::sort(sizes.rbegin(), sizes.rend());
  }
  std::size_t count(T threshold) const {
    return static_cast<std::size_t>(
        std::count_if(sizes.begin(), sizes.end(), [&](T size) { return size >= threshold; }));
  }
  double largest() const { return sizes.empty() ? 0.0 : static_cast<double>(sizes[0]); }
  T bounded(double t) const { return static_cast<T>(std::clamp(t, 0.0, largest())); }
};

struct kept {
  double threshold = 0;
  double factor = 1;
  std::size_t count = 0;
  std::size_t selected = 0;
  std::size_t stages = 0;
};

template <class T>
T threshold_of(topsum::fixed_threshold const& rule, estimate<T> const&, kept const& last, kept&) {
  return static_cast<T>(rule.threshold) * static_cast<T>(last.factor);
}
template <class T>
void remember(topsum::fixed_threshold const& rule, estimate<T> const&, kept const& last, kept& now) {
  now.factor = now.count == 0 ? last.factor * rule.lowering : 1;
}
template <class Rule, class T>
void remember(Rule const&, estimate<T> const&, kept const&, kept&) {}

// Lowered while too few come; else raised while too many come, one step before too few would.
template <class T>
T adapted(estimate<T> const& e, T t, std::uint32_t times, double fewest, double most, double lower, double raise) {
  auto const wanted = static_cast<double>(e.where.count);
  auto const found = [&](T at) { return static_cast<double>(e.count(at)); };
  for (; times > 0 && t > 0 && found(t) < fewest * wanted; --times) t = static_cast<T>(static_cast<double>(t) * lower);
  for (; times > 1 && found(t) > most * wanted && static_cast<double>(e.where.capacity) > most * wanted; --times) {
    T const higher = e.bounded(static_cast<double>(t) * raise);
    if (higher == t || found(higher) < fewest * wanted) break;
    t = higher;
  }
  return t;
}

template <class T>
T threshold_of(topsum::sampled_threshold const& rule, estimate<T> const& e, kept const&, kept&) {
  std::size_t const n = e.values.size();
  std::size_t const k = e.where.count;
  topsum::sampling const how{topsum::density_parts(rule.sample_ratio, "test"), e.step};
  std::size_t const m = how.elements(n, k);
  std::vector<T> sample;
  for (std::size_t j = 0; j < m; ++j) sample.push_back(std::abs(e.values[how.places(e.group, n, m)[j]]));
  std::sort(sample.rbegin(), sample.rend());
  T t = sample[(k * m + n - 1) / n - 1];
  return adapted(e, t, rule.max_adaptations, rule.lower_bound, rule.upper_bound, rule.lower_bound, rule.upper_bound);
}

template <class T>
T threshold_of(topsum::gaussian_threshold const& rule, estimate<T> const& e, kept const&, kept&) {
  double sum = 0;
  double squares = 0;
  for (T x : e.values) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  auto const n = static_cast<double>(e.values.size());
  double const deviation = std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
  // The quantile, from a table of the normal distribution where the density is one of these.
  double const p = static_cast<double>(e.where.count) / n;
  double const z = p == 0.01 ? 2.5758293035489004 : p == 0.1 ? 1.6448536269514722 : p == 0.5 ? 0.67448975019608171 : 0;
  T t = e.bounded(std::abs(sum / n) + z * deviation);
  return adapted(e, t, rule.max_adaptations, 2.0 / 3, 4.0 / 3, 0.5, 1.5);
}

template <class T>
double tail_of(topsum::tail_fit fit, std::vector<T> const& above, double start, double ratio) {
  double mean = 0;
  double squares = 0;
  double logs = 0;
  auto const n = static_cast<double>(above.size());
  for (T x : above) {
    double const excess = static_cast<double>(x) - start;
    mean += excess / n;
    squares += excess * excess / n;
    logs += std::log(static_cast<double>(x)) / n;
  }
  double const simple = start - mean * std::log(ratio);
  double const variance = squares - mean * mean;
  bool const varies = variance > 1e-9 * squares;
  if (fit == topsum::tail_fit::gamma && start == 0) {
    double const s = std::log(mean) - logs;
    double const shape = varies ? (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s) : 1;
    return shape < 1 ? -mean / shape * (std::log(ratio) + std::lgamma(shape)) : simple;
  }
  if (fit == topsum::tail_fit::exponential || !varies) return simple;
  double const shape = (1 - mean * mean / variance) / 2;
  double const scale = mean * (mean * mean / variance + 1) / 2;
  return start + scale / shape * (std::pow(ratio, -shape) - 1);
}

template <class T>
T threshold_of(topsum::exponential_threshold const& rule, estimate<T> const& e, kept const& last, kept& now) {
  std::size_t const stages = rule.stages + last.stages;
  T t = 0;
  for (std::size_t stage = 1; stage <= stages; ++stage) {
    std::vector<T> above = e.sizes;
    above.resize(e.count(t));
    if (above.size() <= e.where.count) break;
    double const needed = static_cast<double>(e.where.count) / static_cast<double>(above.size());
    bool const final = stage == stages || needed >= rule.first_ratio;
    t = std::max(t, e.bounded(tail_of(rule.fit, above, static_cast<double>(t), final ? needed : rule.first_ratio)));
    if (final) break;
  }
  now.stages = last.stages;
  return t;
}
template <class T>
void remember(topsum::exponential_threshold const& rule, estimate<T> const& e, kept const& last, kept& now) {
  now.selected = last.selected + std::min(now.count, 2 * std::max(e.where.count, e.where.capacity));
  if ((e.step + 1) % rule.adapt_every != 0) return;
  double const aim = static_cast<double>(e.where.count * rule.adapt_every);
  bool const off = std::abs(static_cast<double>(now.selected) - aim) > rule.tolerance * aim;
  if (off && rule.stages + now.stages < rule.max_stages) ++now.stages;
  now.selected = 0;
}

template <class T>
T threshold_of(topsum::bisected_threshold const& rule, estimate<T> const& e, kept const& last, kept&) {
  if (e.step % rule.every != 0) return last.count == 0 ? T{0} : static_cast<T>(last.threshold);
  double mean = 0;
  for (T x : e.values) mean += std::abs(static_cast<double>(x));
  mean /= static_cast<double>(e.values.size());
  double low = mean;
  double high = e.largest();
  T found = 0;
  for (std::uint32_t i = 0; i < rule.max_bisections; ++i) {
    T const middle = e.bounded(low + (high - low) / 2);
    std::size_t const count = e.count(middle);
    if (count >= e.where.count) found = middle;
    if (count >= e.where.count && count < 2 * e.where.count) break;
    if (count < e.where.count) {
      high = static_cast<double>(middle);
    } else {
      low = std::max(mean, static_cast<double>(middle));
    }
  }
  return found;
}

// One step of a rule over all groups: what it selects, in the order of positions.
template <class Rule, class T>
sparse<T> select_groups(Rule const& rule, std::vector<T> const& dense, std::vector<target> const& targets,
                        std::uint64_t step, std::vector<kept>& memory) {
  sparse<T> all;
  for (std::size_t g = 0; g < targets.size(); ++g) {
    if (targets[g].count == 0) continue;
    estimate<T> const e{dense, targets[g], g, step};
    kept now;
    T const t = threshold_of(rule, e, memory[g], now);
    now.threshold = static_cast<double>(t);
    sparse<T> part = part_of(dense, targets[g].group);
    std::erase_if(part, [&](auto const& one) { return one.value == 0 || std::abs(one.value) < t; });
    now.count = part.size();
    remember(rule, e, memory[g], now);
    memory[g] = now;
    part = first_of(std::move(part), targets[g].capacity);
    all.insert(all.end(), part.begin(), part.end());
  }
  in_order(all);
  return all;
}

}  // namespace test::oracle

#endif
