// SPDX-License-Identifier: BSL-1.0
// Slow and obvious versions of the selecting verbs, and inputs on which they differ from hasty ones.
#ifndef TOPSUM_TESTS_UNIT_BACKEND_ORACLE_HPP
#define TOPSUM_TESTS_UNIT_BACKEND_ORACLE_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <topsum/backend/host.hpp>

namespace test {

using topsum::host;
using topsum::piece;
using topsum::wide_t;

inline std::vector<host::instruction_set> instruction_sets() {
  std::vector<host::instruction_set> sets;
  for (auto set : {host::instruction_set::portable, host::instruction_set::avx2, host::instruction_set::avx512}) {
    if (topsum::detail::cpu_has(set)) sets.push_back(set);
  }
  return sets;
}

template <class T>
bool same_bits(std::span<T const> a, std::span<T const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return same_bits(std::span<T const>{a}, std::span<T const>{b});
}

enum class pattern {
  bell,
  zeros,
  equal,
  rising,
  falling,
  negative,
  spikes,
  one,
  denormal,
  few_levels,
  heavy,
  nonfinite,
  all_bad
};
inline constexpr std::array patterns{pattern::bell,     pattern::zeros,      pattern::equal,  pattern::rising,
                                     pattern::falling,  pattern::negative,   pattern::spikes, pattern::one,
                                     pattern::denormal, pattern::few_levels, pattern::heavy,  pattern::nonfinite,
                                     pattern::all_bad};

template <std::floating_point T>
std::vector<T> make(pattern what, std::size_t n, unsigned seed) {
  std::mt19937 random{seed};
  std::normal_distribution<T> bell;
  std::vector<T> x(n);
  auto const bad = [&](std::size_t i) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    return i % 3 == 0 ? inf : i % 3 == 1 ? -inf : std::numeric_limits<T>::quiet_NaN();
  };
  for (std::size_t i = 0; i < n; ++i) {
    T const b = bell(random);
    auto const ramp = static_cast<T>(i) / static_cast<T>(n);
    switch (what) {
      case pattern::bell: x[i] = b; break;
      case pattern::zeros: x[i] = i % 2 == 0 ? T{0} : -T{0}; break;
      case pattern::equal: x[i] = random() % 2 == 0 ? T{2} : -T{2}; break;
      case pattern::rising: x[i] = ramp; break;
      case pattern::falling: x[i] = 1 - ramp; break;
      case pattern::negative: x[i] = -std::abs(b) - 1; break;
      case pattern::spikes: x[i] = random() % 512 == 0 ? b * 1000 : b / 1000; break;
      case pattern::one: x[i] = i == n / 2 ? T{-3} : T{0}; break;
      case pattern::denormal: x[i] = std::numeric_limits<T>::denorm_min() * static_cast<T>(random() % 9); break;
      case pattern::few_levels: x[i] = static_cast<T>(static_cast<int>(random() % 5) - 2); break;
      case pattern::heavy: x[i] = std::exp(b * 20); break;
      case pattern::nonfinite:
        x[i] = i == 0 || i + 1 == n || random() % 97 == 0 ? bad(random())
               : random() % 11 == 0                       ? std::numeric_limits<T>::max() * b / 4
                                                          : b;
        break;
      case pattern::all_bad: x[i] = bad(i); break;
    }
  }
  return x;
}

// The same rounded to a narrow type.
template <class T>
std::vector<T> make(pattern what, std::size_t n, unsigned seed) {
  std::vector<T> x;
  for (wide_t<T> const value : make<wide_t<T>>(what, n, seed)) x.push_back(topsum::from_wide<T>(value));
  return x;
}

// What evaluating a source must give.
template <class T, class Formula>
struct evaluated {
  using R = wide_t<T>;
  std::vector<R> accumulators;
  std::array<std::vector<R>, Formula::states> states;
  topsum::nonfinite_record fault;
};

template <class T, class Formula>
evaluated<T, Formula> evaluate(std::vector<T> const& gradient,
                               std::array<std::vector<wide_t<T>>, Formula::states> const& states, Formula formula) {
  evaluated<T, Formula> e{std::vector<wide_t<T>>(gradient.size()), states, {}};
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    std::array<wide_t<T>, Formula::states> s;
    for (std::size_t j = 0; j < s.size(); ++j) s[j] = states[j][i];
    wide_t<T> const x = formula(gradient[i], s);
    if (topsum::is_finite(x)) {
      e.accumulators[i] = x;
      for (std::size_t j = 0; j < s.size(); ++j) e.states[j][i] = s[j];
    } else {
      e.fault.count += 1;
      e.fault.first = std::min<std::uint64_t>(e.fault.first, i);
    }
  }
  return e;
}

template <class R, class I>
struct list_of {
  std::vector<I> indices;
  std::vector<R> values;
  friend bool operator==(list_of const& a, list_of const& b) {
    return a.indices == b.indices && same_bits(a.values, b.values);
  }
};

// Of the positions given, the k first: larger magnitude first, ties to the smaller index. Appended in index order.
template <class R, class I>
void append_first(std::vector<std::size_t> at, std::vector<R> const& x, std::size_t k, list_of<R, I>& out) {
  auto const first = [&](std::size_t a, std::size_t b) {
    auto const ma = topsum::magnitude(x[a]);
    auto const mb = topsum::magnitude(x[b]);
    return ma != mb ? ma > mb : a < b;
  };
  std::sort(at.begin(), at.end(), first);
  at.resize(std::min(at.size(), k));
  std::sort(at.begin(), at.end());
  for (std::size_t i : at) {
    out.indices.push_back(static_cast<I>(i));
    out.values.push_back(x[i]);
  }
}

// A list with room for `capacity` entries and canaries behind.
template <class R, class I>
struct room {
  static constexpr std::size_t guard = 80;
  explicit room(std::size_t capacity)
      : indices(capacity + guard, I{77}), values(capacity + guard, R{77}), capacity_{capacity} {}
  topsum::entries_view<host, R, I> view() {
    return {std::span{indices}.first(capacity_), std::span{values}.first(capacity_), {&count, 1}};
  }
  list_of<R, I> list() const {
    auto const n = static_cast<std::ptrdiff_t>(std::min(count, capacity_));
    return {{indices.begin(), indices.begin() + n}, {values.begin(), values.begin() + n}};
  }
  bool guarded() const {
    return std::all_of(indices.end() - guard, indices.end(), [](I i) { return i == 77; }) &&
           std::all_of(values.end() - guard, values.end(), [](R x) { return x == 77; });
  }
  std::vector<I> indices;
  std::vector<R> values;
  std::size_t count = 12345;

 private:
  std::size_t capacity_;
};

// A source over vectors, in place or not.
template <class T, class Formula>
struct arena {
  using R = wide_t<T>;
  std::vector<T> gradient;
  std::array<std::vector<R>, Formula::states> before;
  std::array<std::vector<R>, Formula::states> after;
  topsum::nonfinite_record fault;
  topsum::source<host, T, Formula> source(Formula formula, bool in_place) {
    topsum::source<host, T, Formula> s{gradient, {}, {}, formula, {&fault, 1}};
    after = before;
    for (std::size_t j = 0; j < Formula::states; ++j) {
      if (!in_place) std::fill(after[j].begin(), after[j].end(), R{55});
      s.states_in[j] = in_place ? after[j] : before[j];
      s.states_out[j] = after[j];
    }
    fault = {};
    return s;
  }
  bool agrees(evaluated<T, Formula> const& e) const {
    bool same = fault.count == e.fault.count && fault.first == e.fault.first;
    for (std::size_t j = 0; j < Formula::states; ++j) same = same && same_bits(after[j], e.states[j]);
    return same;
  }
};

// Momentum correction: two states, the second of which accumulates.
template <class T>
struct momentum {
  static constexpr std::size_t states = 2;
  static constexpr std::size_t accumulator = 1;
  T factor;
  T operator()(T gradient, std::array<T, 2>& state) const noexcept {
    state[0] = topsum::multiply_then_add(factor, state[0], gradient);
    state[1] += state[0];
    return state[1];
  }
};

}  // namespace test

#endif
