// SPDX-License-Identifier: BSL-1.0
/// \file
/// What the host finds out about a source without evaluating it: moments of groups, the k-th magnitude of a sample; and the pass
/// that reads the accumulators at given positions.
#ifndef TOPSUM_DETAIL_HOST_STATISTICS_HPP
#define TOPSUM_DETAIL_HOST_STATISTICS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>

#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_dispatch.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_pass.hpp>

namespace topsum::detail {

/// Moments that come into being, a block of the pass at a time. See `moments` for the order of additions.
template <class R>
class moment_sums {
 public:
  /// Elements below `t` > 0 do not count.
  explicit moment_sums(bits_t<R> t) noexcept : least_{t} { clear(); }

  /// A whole block of the pass, zeros behind its end. Lanes take turns, as blocks of the pass are multiples of them.
  template <class Ops>
  [[gnu::always_inline]] void take(R const* values, bits_t<R> largest) noexcept {
    if (largest >= least_) {
      count_ += static_cast<std::uint64_t>(std::popcount(Ops::at_least(values, least_)));
      largest_ = std::max(largest_, largest);
      for (std::size_t at = 0; at < block_size<R>; at += moments::lanes) add(values + at);
    }
    seen_ += block_size<R>;
    if (seen_ == moments::block) fold();
  }

  /// The moments of all that was taken.
  [[nodiscard]] moments finish() noexcept {
    fold();
    total_.count = count_;
    total_.largest = static_cast<double>(from_magnitude<R>(largest_));
    return total_;
  }

 private:
  static constexpr std::size_t lanes = moments::lanes;
  using lane_sums = std::array<double, lanes>;

  [[gnu::always_inline]] void add(R const* values) noexcept {
    using signed_bits = std::make_signed_t<bits_t<R>>;
    auto const least = static_cast<signed_bits>(least_);
    std::array<R, lanes> kept;  // those that do not count are zero
    for (std::size_t l = 0; l < lanes; ++l) {
      bits_t<R> const all = static_cast<signed_bits>(magnitude(values[l])) >= least ? ~bits_t<R>{0} : bits_t<R>{0};
      kept[l] = std::bit_cast<R>(static_cast<bits_t<R>>(std::bit_cast<bits_t<R>>(values[l]) & all));
    }
    lane_sums x;
    for (std::size_t l = 0; l < lanes; ++l) x[l] = static_cast<double>(kept[l]);
    for (std::size_t l = 0; l < lanes; ++l) sum_[l] += x[l];
    for (std::size_t l = 0; l < lanes; ++l) squares_[l] = multiply_then_add(x[l], x[l], squares_[l]);
    for (std::size_t l = 0; l < lanes; ++l) x[l] = std::bit_cast<double>(magnitude(x[l]));
    for (std::size_t l = 0; l < lanes; ++l) magnitude_[l] += x[l];
    if constexpr (sizeof(R) == 8) {  // subnormal numbers have no leading bit to split off
      constexpr double normal = std::numeric_limits<double>::min();
      constexpr int far = 64;
      for (std::size_t l = 0; l < lanes; ++l) {
        bool const tiny = x[l] != 0 && x[l] < normal;
        exponent_[l] -= tiny ? far : 0;
        x[l] *= tiny ? 0x1p64 : 1.0;
      }
    }
    for (std::size_t l = 0; l < lanes; ++l) x[l] = std::bit_cast<std::uint64_t>(x[l]) == 0 ? 1.0 : x[l];
    for (std::size_t l = 0; l < lanes; ++l) {
      split_number const s = split(x[l]);
      mantissa_[l] *= s.mantissa;  // below 2^128 in a block
      exponent_[l] += s.exponent;
    }
  }

  [[gnu::noinline]] void fold() noexcept {
    if (seen_ == 0) return;
    for (std::size_t l = 0; l < lanes; ++l) {
      split_number const s = split(mantissa_[l]);
      mantissa_[l] = s.mantissa;
      exponent_[l] += s.exponent;
    }
    for (std::size_t width = lanes / 2; width != 0; width /= 2) {
      for (std::size_t l = 0; l < width; ++l) {
        sum_[l] += sum_[l + width];
        magnitude_[l] += magnitude_[l + width];
        squares_[l] += squares_[l + width];
        mantissa_[l] *= mantissa_[l + width];
        exponent_[l] += exponent_[l + width];
      }
    }
    total_.sum += sum_[0];
    total_.sum_magnitude += magnitude_[0];
    total_.sum_squares += squares_[0];
    split_number const product = split(total_.mantissa * split(mantissa_[0]).mantissa);
    total_.mantissa = product.mantissa;
    total_.exponent += product.exponent + split(mantissa_[0]).exponent + exponent_[0];
    clear();
  }

  void clear() noexcept {
    sum_.fill(0);
    magnitude_.fill(0);
    squares_.fill(0);
    mantissa_.fill(1);
    exponent_.fill(0);
    seen_ = 0;
  }

  alignas(64) lane_sums sum_;
  alignas(64) lane_sums magnitude_;
  alignas(64) lane_sums squares_;
  alignas(64) lane_sums mantissa_;
  alignas(64) std::array<std::int64_t, lanes> exponent_;
  moments total_{};
  bits_t<R> least_;
  bits_t<R> largest_ = 0;
  std::uint64_t count_ = 0;
  std::size_t seen_ = 0;
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // else the vectoriser fuses products with sums, even behind a barrier
#endif

/// The accumulator that a pass would find at a position; 0 where it is not finite. Nothing is stored.
template <class B, class T, class Formula>
[[nodiscard, gnu::always_inline]] inline wide_t<T> peek(source<B, T, Formula> const& from, Formula const& formula,
                                                        std::size_t i) noexcept {
  using R = wide_t<T>;
  std::array<R, Formula::states> state;
  for (std::size_t j = 0; j < Formula::states; ++j) state[j] = from.states_in[j][i];
  R x = formula(from.gradient[i], state);
  if constexpr (Formula::states > 0) x = state[Formula::accumulator];
  return magnitude(x) < nonfinite_magnitude<R> ? x : R{0};
}

/// Elements of a group whose magnitude is at least `t` > 0.
template <class Ops, class B, class T, class Formula>
[[gnu::always_inline]] inline moments moments_body(source<B, T, Formula> const& from, group const& g,
                                                   bits_t<wide_t<T>> t) noexcept {
  using R = wide_t<T>;
  constexpr std::size_t block = block_size<R>;
  constexpr std::size_t states = Formula::states;
  Formula const formula = from.formula;
  T const* const gradient = from.gradient.data();
  std::array<R const*, states> in;
  for (std::size_t j = 0; j < states; ++j) in[j] = from.states_in[j].data();
  alignas(64) std::array<R, block> values;
  moment_sums<R> sums{t};

  std::size_t const n = g.size();
  std::size_t begin = g.first;  // of what is left
  std::size_t run = g.breadth;  // what is left of a run
  for (std::size_t first = 0; first < n; first += block) {
    if (run >= block && g.height == 1) {
      prefetch_block(gradient + begin, block * sizeof(T));
      for (std::size_t j = 0; j < states; ++j) prefetch_block(in[j] + begin, block * sizeof(R));
      for (std::size_t i = 0; i < block; ++i) {
        std::array<R, states> state;
        for (std::size_t j = 0; j < states; ++j) state[j] = in[j][begin + i];
        R const x = formula(gradient[begin + i], state);
        if constexpr (states == 0) values[i] = x;
        if constexpr (states > 0) values[i] = state[Formula::accumulator];
      }
      begin += block;
      run -= block;
    } else {
      values.fill(R{0});
      for (std::size_t i = 0; i < std::min(block, n - first); ++i) {
        values[i] = peek(from, formula, begin);
        ++begin;
        if (--run == 0) {
          begin += g.stride - g.breadth;
          run = g.breadth;
        }
      }
    }
    bits_t<R> largest = largest_magnitude(values.data());
    if (largest >= nonfinite_magnitude<R>) [[unlikely]] {
      for (R& x : values) x = magnitude(x) < nonfinite_magnitude<R> ? x : R{0};
      largest = largest_magnitude(values.data());
    }
    sums.template take<Ops>(values.data(), largest);
  }
  return sums.finish();
}

struct moments_dispatch {
  template <class Ops, class... A>
  [[gnu::always_inline]] static moments run(A&... arguments) noexcept {
    return moments_body<Ops>(arguments...);
  }
};

/// The `rank`-th magnitude, 0 < rank <= elements, of a sample of a group. `room` > rank values of memory at `values`.
template <class B, class T, class Formula>
[[nodiscard]] wide_t<T> kth_of_sample(source<B, T, Formula> const& from, group const& g, sampling const& how,
                                      std::size_t index, std::size_t elements, std::size_t rank, wide_t<T>* values,
                                      std::size_t room) noexcept {
  using R = wide_t<T>;
  constexpr std::size_t ahead = 24;
  Formula const formula = from.formula;
  sample_places const drawn = how.places(index, g.size(), elements);
  std::size_t used = 0;
  auto const keep_largest = [&] {
    std::nth_element(values, values + (rank - 1), values + used, std::greater<>{});
    used = rank;
  };
  std::array<std::size_t, ahead> places{};  // drawn ahead, to fetch them
  for (std::size_t j = 0; j < elements + ahead; ++j) {
    std::size_t const at = places[j % ahead];
    if (j < elements) {
      std::size_t const next = g.position(drawn[j]);
      places[j % ahead] = next;
#if defined(__GNUC__)
      __builtin_prefetch(from.gradient.data() + next);
      for (std::size_t s = 0; s < Formula::states; ++s) __builtin_prefetch(from.states_in[s].data() + next);
#endif
    }
    if (j < ahead) continue;
    if (used == room) keep_largest();
    values[used++] = from_magnitude<R>(magnitude(peek(from, formula, at)));
  }
  keep_largest();
  return values[rank - 1];
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/// The moments of a group in the instructions of `set`, which the CPU must have.
template <class B, class T, class Formula>
[[nodiscard]] moments moments_of(instruction_set set, source<B, T, Formula> const& from, group const& g,
                                 bits_t<wide_t<T>> t) noexcept {
  return run_with<moments_dispatch>(set, from, g, t);
}

/// Sink: the accumulators at increasing positions.
template <class R, class I>
struct lookup_sink {
  I const* indices;
  R* values;
  std::size_t count;
  std::size_t done = 0;

  void nonfinite(std::size_t, std::uint64_t) noexcept {}
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R>) noexcept {
    for (; done < count && indices[done] < first + n; ++done) values[done] = block[indices[done] - first];
  }
};

}  // namespace topsum::detail

#endif
