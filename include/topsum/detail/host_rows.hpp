// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exact selection from rows that fit the first-level cache: evaluate one and collect maxima, bound its k-th magnitude by them,
/// read it again for what reaches the bound, and drop the few that are too many.
#ifndef TOPSUM_DETAIL_HOST_ROWS_HPP
#define TOPSUM_DETAIL_HOST_ROWS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <topsum/core/piece.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_candidates.hpp>
#include <topsum/detail/host_dispatch.hpp>
#include <topsum/detail/host_isa.hpp>
#include <topsum/detail/host_pass.hpp>
#include <topsum/detail/host_radix.hpp>
#include <topsum/detail/host_rescan.hpp>

namespace topsum::detail {

/// Rows up to this size are selected from in the cache, longer ones as they stream by.
inline constexpr std::size_t longest_row = 8192;

/// Memory of a row's selection.
struct row_scratch {
  /// Two blocks of maxima: a row's bound is close as long as k is at most half their number.
  template <class R>
  static constexpr std::size_t maxima = 2 * block_size<R>;
  static constexpr std::size_t room = longest_row + block_size<float>;

  fault_masks faults;
  std::array<std::uint32_t, room> positions;  ///< of candidates, from the row's begin
  alignas(64) std::array<std::byte, maxima<float> * sizeof(float)> most;
  alignas(64) std::array<std::byte, room * sizeof(double)> values;  ///< of candidates
};

/// A bound from below of the k-th magnitude of what `most` are the maxima of: at least k of them reach it, and few more; k <= n.
/// Found quickly where it is close to `guess`.
template <class Ops, class R>
[[gnu::always_inline]] inline bits_t<R> bound_of(R const* most, std::size_t n, std::size_t k,
                                                 bits_t<R> guess) noexcept {
  using bits = bits_t<R>;
  std::size_t const enough = k + std::max<std::size_t>(1, k / 8);
  bits low = 0;
  bits high = nonfinite_magnitude<R>;  // fewer than k reach it
  bits step = bits{1} << (std::numeric_limits<R>::digits - 4);
  bits probe = guess;
  while (high - low > 1) {
    if (probe <= low || probe >= high) probe = static_cast<bits>(low + (high - low) / 2);
    std::size_t const count = count_reaching<Ops>(most, n, probe);
    if (count < k) {
      high = probe;
      probe = low == 0 && probe > step ? static_cast<bits>(probe - step) : bits{0};
    } else {
      low = probe;
      if (count <= enough) break;
      probe = high == nonfinite_magnitude<R> ? static_cast<bits>(probe + step) : bits{0};
    }
    step = static_cast<bits>(std::min(2 * step, nonfinite_magnitude<R> / 4));
  }
  return low;
}

/// The cut that leaves k of n values, 0 < k <= n <= Lanes. As many values as lanes are read.
template <std::size_t Lanes, class R>
[[gnu::always_inline]] inline magnitude_cut<R> cut_of_lanes(R const* values, std::size_t n, std::size_t k) noexcept {
  using number = std::make_signed_t<bits_t<R>>;
  alignas(64) std::array<number, Lanes> m;
  alignas(64) std::array<number, Lanes> above{};
  for (std::size_t i = 0; i < Lanes; ++i) m[i] = i < n ? static_cast<number>(magnitude(values[i])) : -1;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < Lanes; ++i) above[i] += m[j] > m[i] ? 1 : 0;
  }
  // The k-th is the smallest that fewer than k exceed.
  auto least = static_cast<number>(nonfinite_magnitude<R>);
  for (std::size_t i = 0; i < Lanes; ++i) {
    least = m[i] >= 0 && above[i] < static_cast<number>(k) && m[i] < least ? m[i] : least;
  }
  number larger = 0;
  for (std::size_t i = 0; i < Lanes; ++i) larger += m[i] > least ? 1 : 0;
  return {static_cast<bits_t<R>>(least), k - static_cast<std::size_t>(larger)};
}

/// Candidates of a row, n of them in order, and the row's begin.
template <class R>
struct row_candidates {
  std::uint32_t const* positions;
  R const* values;
  std::size_t n;
  std::size_t begin;
};

/// Writes the k first of at most `Lanes` candidates, 0 < k <= n, in order; returns the k-th magnitude. Without a branch that
/// depends on values: each counts those that come before it. As many values as lanes are read.
template <class Ops, std::size_t Lanes, class R, class I>
[[gnu::always_inline]] inline bits_t<R> first_of_few(row_candidates<R> const& row, std::size_t k, I* indices, R* values,
                                                     std::size_t room) noexcept {
  using number = std::make_signed_t<bits_t<R>>;
  alignas(64) std::array<number, Lanes> m;
  alignas(64) std::array<number, Lanes> before{};
  for (std::size_t i = 0; i < Lanes; ++i) m[i] = static_cast<number>(magnitude(row.values[i]));
  for (std::size_t j = 0; j < row.n; ++j) {
    number const other = m[j];
    auto const at = static_cast<number>(j);
    for (std::size_t i = 0; i < Lanes; ++i) {
      number const tie = at < static_cast<number>(i) ? 1 : 0;
      before[i] += other > m[i] - tie ? 1 : 0;
    }
  }
  number last = 0;
  for (std::size_t i = 0; i < Lanes; ++i) {
    bool const is_last = before[i] == static_cast<number>(k) - 1 && i < row.n;
    last = is_last ? m[i] : last;
  }
  if (k + Lanes <= room) {
    Ops::keep_ranked(row.positions, row.values, before.data(), row.n, k, row.begin, indices, values);
  } else {
    std::array<I, 2 * Lanes> kept_indices;
    std::array<R, 2 * Lanes> kept_values;
    Ops::keep_ranked(row.positions, row.values, before.data(), row.n, k, row.begin, kept_indices.data(),
                     kept_values.data());
    std::copy_n(kept_indices.data(), k, indices);
    std::copy_n(kept_values.data(), k, values);
  }
  return static_cast<bits_t<R>>(last);
}

/// Sink: positions of what reaches a bound, in a row.
template <class R>
struct position_sink {
  bits_t<R> bound;
  std::size_t begin;
  std::uint32_t* positions;
  std::size_t used = 0;

  template <class Ops>
  [[gnu::always_inline]] void retake(R const* block, std::size_t first, std::size_t n) noexcept {
    used += Ops::positions(block, bound, n, static_cast<std::uint32_t>(first - begin), positions + used);
  }
};

/// Sink: both a row's maxima and what reaches a guessed bound.
template <class R>
struct row_sink {
  maxima_sink<R> maxima;
  position_sink<R> reaching;

  void nonfinite(std::size_t first, std::uint64_t bad) noexcept { maxima.nonfinite(first, bad); }
  template <class Ops>
  [[gnu::always_inline]] void take(R const* block, std::size_t first, std::size_t n, bits_t<R> largest) noexcept {
    maxima.template take<Ops>(block, first, n, largest);
    reaching.template retake<Ops>(block, first, n);
  }
};

/// What the next row's bound may be, from the rows before: neighbours are of a kind. A wrong guess costs time only.
template <class R>
class row_guess {
 public:
  explicit row_guess(std::size_t k) noexcept
      : share_{1 / (static_cast<R>(k) + 3 * std::sqrt(static_cast<R>(k)) + 3)}, most_{6 * k + 16} {}

  [[nodiscard]] bits_t<R> bound() const noexcept { return std::max<bits_t<R>>(1, magnitude(level_ * (1 - margin_))); }
  /// Whether n entries that reached it will do for k.
  [[nodiscard]] bool suits(std::size_t n, std::size_t k) const noexcept { return n >= k && n <= most_; }
  /// `n` entries reached it, and `kth` is the k-th magnitude. How much lower a bound lets how many more through, it learns.
  void follow(std::size_t n, R kth) noexcept {
    R const excess = std::min(static_cast<R>(n) * share_, R{2}) - 1;
    level_ += (kth - level_) * (level_ == 0 ? R{1} : R{0.25});
    margin_ = std::clamp(margin_ * (1 - excess * (excess > 0 ? R{0.25} : R{1})), static_cast<R>(0.001), R{0.5});
  }

 private:
  R share_;
  std::size_t most_;
  R level_ = 0;
  R margin_ = static_cast<R>(0.1);
};

/// The groups of a piece, none longer than `longest_row`: exactly the `count` first of each, while `out` has room.
/// Returns how many.
template <class Ops, class B, class T, class Formula, class I>
[[gnu::always_inline]] inline std::size_t rows_body(source<B, T, Formula> const& from, piece const& p,
                                                    row_scratch& scratch, radix_scratch& radix,
                                                    list_room<wide_t<T>, I> out, wide_t<T>* kth) noexcept {
  using R = wide_t<T>;
  constexpr std::size_t maxima = row_scratch::maxima<R>;
  R* const most = reinterpret_cast<R*>(scratch.most.data());
  R* const values = reinterpret_cast<R*>(scratch.values.data());
  std::uint32_t* const positions = scratch.positions.data();
  bits_t<R> bound = magnitude(R{1});
  row_guess<R> guess{std::min(p.count, p.capacity)};
  std::size_t used = 0;
  std::size_t const groups = group_count(p);
  for (std::size_t g = 0; g < groups; ++g) {
    group const row = group_at(p, g);
    std::size_t const end = row.first + row.breadth;
    std::size_t const k = std::min({p.count, p.capacity, row.breadth, out.capacity - used});
    std::fill_n(most, maxima, R{0});
    scratch.faults.clear();
    row_sink<R> sink{{most, maxima, row.first, scratch.faults}, {guess.bound(), row.first, positions}};
    pass_body<Ops, false>(from, row.first, end, sink);
    if (k == 0) continue;

    std::size_t n = sink.reaching.used;
    std::size_t const guessed = n;
    if (!guess.suits(n, k)) {
      bound = k <= maxima / 2 ? bound_of<Ops>(most, maxima, k, bound) : 0;
      position_sink<R> reaching{bound, row.first, positions};
      rescan_body<Ops>(from, row.first, end, scratch.faults, reaching);
      n = reaching.used;
    }
    gather_again(from, row.first, scratch.faults, positions, n, values);

    constexpr std::size_t few = block_size<R> / 2;
    row_candidates<R> const found{positions, values, n, row.first};
    bits_t<R> last;
    if (n <= few) {
      last = first_of_few<Ops, few>(found, k, out.indices + used, out.values + used, out.capacity - used);
    } else {
      magnitude_cut<R> const cut = find_cut<Ops>(values, n, k, radix);
      compact<Ops>(positions, values, n, cut, positions, values, k);
      for (std::size_t i = 0; i < k; ++i) out.indices[used + i] = static_cast<I>(row.first + positions[i]);
      std::memcpy(out.values + used, values, k * sizeof(R));
      last = cut.bits;
    }
    kth[g] = from_magnitude<R>(last);
    guess.follow(guessed, kth[g]);
    used += k;
  }
  return used;
}

struct rows_dispatch {
  template <class Ops, class... A>
  [[gnu::always_inline]] static std::size_t run(A&... arguments) noexcept {
    return rows_body<Ops>(arguments...);
  }
};

/// `rows_body` in the instructions of `set`.
template <class B, class T, class Formula, class I>
std::size_t top_k_of_rows(instruction_set set, source<B, T, Formula> const& from, piece const& p, row_scratch& scratch,
                          radix_scratch& radix, list_room<wide_t<T>, I> out, wide_t<T>* kth) noexcept {
  return run_with<rows_dispatch>(set, from, p, scratch, radix, out, kth);
}

}  // namespace topsum::detail

#endif
