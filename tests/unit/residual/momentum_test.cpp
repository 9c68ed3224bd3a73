// SPDX-License-Identifier: BSL-1.0
// Residual stores with momentum against their definitions, one element at a time.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using test::same_bits;
using topsum::decoupled_momentum;
using topsum::host;
using topsum::instruction_set;
using topsum::momentum_correction;
using topsum::laws::input;

// A store on one rank, stepped by hand.
template <class T, class Store>
class bench {
 public:
  bench(Store store, std::size_t n, host backend = {})
      : store_{store}, backend_{backend}, state_{backend_, n, store}, accumulators_(n), n_{n} {
    store.validate();
  }
  std::vector<T> const& accumulate(std::vector<T> const& gradient) {
    fault = {};
    backend_.accumulate(
        store_.template accumulate<host, T>(backend_, std::span{gradient}, state_, std::span{&fault, 1}),
        std::span{accumulators_});
    return accumulators_;
  }
  // Entries i with i % 5 == phase were applied, with these values.
  void keep(std::size_t phase, std::vector<T> const& values) {
    topsum::entries<host, T, std::uint32_t> list{backend_, n_};
    auto const view = list.view();
    for (std::size_t i = phase; i < n_; i += 5) {
      view.indices[view.count[0]] = static_cast<std::uint32_t>(i);
      view.values[view.count[0]++] = values[i];
    }
    store_.keep(backend_, state_, view);
  }
  void keep_all(std::vector<T>& values) { store_.template keep_dense<host, T>(backend_, state_, std::span{values}); }
  void commit() { store_.commit(state_); }
  void discard() { store_.discard(state_); }
  std::vector<T> kept(std::size_t j) {
    auto const view = state_.current(j);
    return {view.begin(), view.end()};
  }
  topsum::nonfinite_record fault;

 private:
  Store store_;
  host backend_;
  typename Store::template state<host, T> state_;
  std::vector<T> accumulators_;
  std::size_t n_;
};

// The definition: an overflow leaves v and m as they were.
template <class T>
struct definition {
  momentum_correction how;
  std::vector<T> v, m;
  std::vector<T> acc{};
  std::uint64_t faults = 0;

  void accumulate(std::vector<T> const& gradient, T scale = 1) {
    acc.assign(v.size(), T{0});
    faults = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      auto const mu = static_cast<T>(how.momentum);
      T const g = gradient[i] * scale;
      T const next_m = mu * m[i] + g;
      T const push = how.nesterov ? mu * next_m + g : next_m;
      T const next_v = v[i] + push;
      if (!std::isfinite(next_v)) {
        ++faults;
        continue;
      }
      m[i] = next_m;
      v[i] = acc[i] = next_v;
    }
  }
  void keep(std::size_t phase) {
    for (std::size_t i = phase; i < v.size(); i += 5) {
      v[i] -= acc[i];
      if (how.masking) m[i] = 0;
    }
  }
};

constexpr std::size_t sizes[] = {0, 1, 2, 31, 63, 64, 65, 127, 1009};
constexpr instruction_set every_set[] = {instruction_set::automatic, instruction_set::portable, instruction_set::avx2,
                                         instruction_set::avx512};

template <class T>
void check_against_definition(momentum_correction const& how) {
  for (std::size_t const n : sizes) {
    for (instruction_set const set : every_set) {
      bench<T, momentum_correction> store{how, n, host{set}};
      definition<T> slow{how, std::vector<T>(n), std::vector<T>(n)};
      for (std::uint64_t step = 0; step < 7; ++step) {
        auto gradient = topsum::laws::make_input<T>(input::laplace, n, step);
        if (n > 2 && step == 3) gradient[n / 3] = std::numeric_limits<T>::quiet_NaN();
        if (n > 2 && step == 4) gradient[n / 2] = -std::numeric_limits<T>::infinity();
        if (n > 2 && step >= 5) gradient[n - 1] = std::numeric_limits<T>::max();
        slow.accumulate(gradient);
        auto const acc = store.accumulate(gradient);
        CHECK(store.fault.count == slow.faults);
        CHECK(same_bits(acc, slow.acc));
        store.keep(step % 5, acc);
        slow.keep(step % 5);
        store.commit();
        CHECK(same_bits(store.kept(0), slow.v));
        CHECK(same_bits(store.kept(1), slow.m));
      }
    }
  }
}

}  // namespace

TEST_CASE("momentum_correction is its definition, bit for bit, for every instruction set") {
  for (double const factor : {0.9, 0.5, 0.0}) {
    for (bool const rollback : {false, true}) {
      check_against_definition<float>({.momentum = factor, .rollback = rollback});
      check_against_definition<float>({.momentum = factor, .nesterov = true, .rollback = rollback});
      check_against_definition<double>({.momentum = factor, .masking = false, .rollback = rollback});
      check_against_definition<double>({.momentum = factor, .nesterov = true, .masking = false, .rollback = rollback});
    }
  }
}

TEST_CASE("under dense sums momentum_correction is momentum SGD") {
  constexpr std::size_t n = 100;
  bench<float, momentum_correction> store{{.momentum = 0.9}, n};
  std::vector<float> m(n);
  for (std::uint64_t step = 0; step < 10; ++step) {
    auto const gradient = topsum::laws::make_input<float>(input::laplace, n, step);
    auto acc = store.accumulate(gradient);
    for (std::size_t i = 0; i < n; ++i) m[i] = 0.9F * m[i] + gradient[i];
    CHECK(same_bits(acc, m));
    store.keep_all(acc);
    store.commit();
    CHECK(store.kept(0) == std::vector<float>(n));
    CHECK(same_bits(store.kept(1), m));
  }
}

TEST_CASE("what a lossy codec left out of an entry stays in v") {
  bench<float, momentum_correction> store{{}, 10};
  auto acc = store.accumulate(std::vector<float>(10, 4.0F));
  for (float& x : acc) x = 3;
  store.keep(0, acc);
  store.commit();
  CHECK(store.kept(0) == std::vector<float>{1, 4, 4, 4, 4, 1, 4, 4, 4, 4});
  CHECK(store.kept(1) == std::vector<float>{0, 4, 4, 4, 4, 0, 4, 4, 4, 4});
}

TEST_CASE("momentum that overflows poisons neither m nor v") {
  constexpr float most = std::numeric_limits<float>::max();
  bench<float, momentum_correction> store{{.momentum = 0.9}, 2};
  store.accumulate({most, 1});
  store.commit();
  CHECK(store.kept(0) == std::vector<float>{most, 1});
  store.accumulate({most, 1});
  store.commit();
  CHECK(store.fault.count == 1);
  CHECK(store.kept(0) == std::vector<float>{most, 2.9F});
  CHECK(store.kept(1) == std::vector<float>{most, 1.9F});
}

TEST_CASE("the gradient is clipped to a norm before it is accumulated") {
  // 3, 4 has norm 5. Sums of squares of small integers are exact in any order.
  for (std::size_t const n : {std::size_t{2}, std::size_t{5000}}) {
    std::vector<float> gradient(n);
    gradient[0] = 3;
    gradient[n - 1] = -4;
    bench<float, momentum_correction> clipped{{.momentum = 0.5, .clip = 2.5}, n};
    bench<float, momentum_correction> whole{{.momentum = 0.5, .clip = 5.0}, n};
    for (int step = 0; step < 2; ++step) {
      auto const acc = clipped.accumulate(gradient);
      auto const all = whole.accumulate(gradient);
      CHECK(acc[0] == (step == 0 ? 1.5F : 3.75F));
      CHECK(acc[n - 1] == (step == 0 ? -2.0F : -5.0F));
      CHECK(all[0] == (step == 0 ? 3.0F : 7.5F));
      clipped.commit();
      whole.commit();
    }
  }
}

TEST_CASE("clipping is the definition with a scaled gradient") {
  constexpr std::size_t n = 1009;
  momentum_correction const how{.nesterov = true, .clip = 10};
  bench<double, momentum_correction> store{how, n};
  definition<double> slow{how, std::vector<double>(n), std::vector<double>(n)};
  for (std::uint64_t step = 0; step < 5; ++step) {
    auto const gradient = topsum::laws::make_input<double>(input::small_integers, n, step);
    double squares = 0;
    for (double const g : gradient) squares += g * g;
    CHECK(squares > 100);
    slow.accumulate(gradient, 10 / std::sqrt(squares));
    CHECK(same_bits(store.accumulate(gradient), slow.v));
    store.commit();
  }
}

TEST_CASE("elements that are not finite do not count in the norm, and a sum of squares that overflows still clips") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  bench<float, momentum_correction> store{{.clip = 2.5}, 4};
  CHECK(store.accumulate({3, nan, -4, infinity}) == std::vector<float>{1.5F, 0, -2, 0});
  CHECK(store.fault.count == 2);
  store.commit();
  CHECK(store.kept(1) == std::vector<float>{1.5F, 0, -2, 0});
  bench<double, momentum_correction> large{{.clip = 1.0}, 4};
  auto const acc = large.accumulate({1e200, -1e200, 1e200, 1e200});
  CHECK(acc == std::vector<double>{0.5, -0.5, 0.5, 0.5});
  bench<float, momentum_correction> nothing{{.clip = 1.0}, 0};
  CHECK(nothing.accumulate({}).empty());
}

TEST_CASE("decoupled_momentum is a momentum from which what was applied is taken away") {
  constexpr std::size_t n = 331;
  for (bool const rollback : {false, true}) {
    bench<float, decoupled_momentum> store{{.beta = 0.9, .rollback = rollback}, n};
    bench<float, topsum::error_feedback> same{{.decay = 0.9, .rollback = rollback}, n};
    std::vector<float> m(n);
    for (std::uint64_t step = 0; step < 10; ++step) {
      auto const gradient = topsum::laws::make_input<float>(input::laplace, n, step);
      for (std::size_t i = 0; i < n; ++i) m[i] = 0.9F * m[i] + gradient[i];
      auto const acc = store.accumulate(gradient);
      CHECK(same_bits(acc, m));
      CHECK(same_bits(acc, same.accumulate(gradient)));
      for (std::size_t i = step % 5; i < n; i += 5) m[i] = 0;
      store.keep(step % 5, acc);
      same.keep(step % 5, acc);
      store.commit();
      same.commit();
      CHECK(store.kept(0) == m);
      CHECK(same_bits(store.kept(0), same.kept(0)));
    }
  }
}

TEST_CASE("a decayed residual halves with every step that leaves it") {
  bench<float, topsum::error_feedback> store{{.decay = 0.5}, 2};
  store.accumulate({8, -8});
  store.commit();
  for (float const left : {4.0F, 2.0F, 1.0F}) {
    CHECK(store.accumulate({0, 0}) == std::vector<float>{left, -left});
    store.commit();
  }
}

TEST_CASE("residual stores say no to parameters that cannot work") {
  auto const refused = [](auto const& store, std::string const& part) {
    auto const e = test::ending_of([&] { store.validate(); });
    CHECK(e.code == topsum::errc::bad_argument);
    CHECK_MESSAGE(e.says(part), e.what);
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (double const bad : {-0.1, 1.0, nan}) refused(momentum_correction{.momentum = bad}, ".momentum = ");
  for (double const bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()})
    refused(momentum_correction{.clip = bad}, "write a norm above 0, or leave it out");
  for (double const bad : {-0.1, 1.1, nan}) {
    refused(decoupled_momentum{.beta = bad}, "is outside [0, 1]");
    refused(topsum::error_feedback{.decay = bad}, "is outside [0, 1]");
  }
  CHECK(topsum::to_text(momentum_correction{.clip = 2.0}) ==
        "momentum_correction{.momentum = 0.9, .nesterov = false, .masking = true, .clip = 2, .rollback = false}");
  CHECK(topsum::to_text(decoupled_momentum{}) == "decoupled_momentum{.beta = 0.999, .rollback = false}");
}
