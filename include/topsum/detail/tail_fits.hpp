// SPDX-License-Identifier: BSL-1.0
/// \file
/// Distributions fitted to the magnitudes of a group by their moments, and the thresholds that follow.
#ifndef TOPSUM_DETAIL_TAIL_FITS_HPP
#define TOPSUM_DETAIL_TAIL_FITS_HPP

#include <cmath>
#include <cstdint>

#include <topsum/core/moments.hpp>
#include <topsum/core/value.hpp>

namespace topsum::detail {

/// log of the gamma function for x > 0, to about 1e-10. std::lgamma writes a global variable.
[[nodiscard]] inline double log_gamma(double x) noexcept {
  double shift = 1;
  for (; x < 8; x += 1) shift *= x;  // gamma(x + 1) = x gamma(x)
  double const r = 1 / x;
  double const series = r * (1.0 / 12 - r * r * (1.0 / 360 - r * r * (1.0 / 1260 - r * r / 1680)));
  return (x - 0.5) * std::log(x) - x + 0.91893853320467274 + series - std::log(shift);
}

/// The magnitudes of `m` are those above `start`, where their excess is exponential: the threshold that the share `ratio` of them
/// reaches. Each of these functions may return nonsense where the fit has no solution; callers bound it.
[[nodiscard]] inline double exponential_tail(moments const& m, double start, double ratio) noexcept {
  double const mean = m.sum_magnitude / static_cast<double>(m.count) - start;
  return start - mean * std::log(ratio);
}

/// The same where the excess is generalized Pareto, by the method of moments.
[[nodiscard]] inline double pareto_tail(moments const& m, double start, double ratio) noexcept {
  auto const n = static_cast<double>(m.count);
  double const average = m.sum_magnitude / n;
  double const mean = average - start;
  double const variance = multiply_then_add(-average, average, m.sum_squares / n);
  if (!(variance > 0 && mean > 0)) return exponential_tail(m, start, ratio);
  double const squared = mean * mean / variance;
  double const shape = (1 - squared) / 2;
  double const scale = mean * (1 + squared) / 2;
  if (std::abs(shape) < 1e-6) return exponential_tail(m, start, ratio);  // its limit
  return start + scale / shape * (std::pow(ratio, -shape) - 1);
}

/// The same where magnitudes above 0 have a gamma distribution: Minka's estimate of the shape, and the tail's closed form for shapes
/// up to 1, as SIDCo has it; exponential for larger ones.
[[nodiscard]] inline double gamma_tail(moments const& m, double ratio) noexcept {
  auto const n = static_cast<double>(m.count);
  double const mean = m.sum_magnitude / n;
  double const mean_log = (std::log(m.mantissa) + static_cast<double>(m.exponent) * 0.69314718055994531) / n;
  double const s = std::log(mean) - mean_log;
  if (!(s > 0)) return exponential_tail(m, 0, ratio);
  double const shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  if (!(shape < 1)) return exponential_tail(m, 0, ratio);
  return -mean / shape * (std::log(ratio) + log_gamma(shape));
}

}  // namespace topsum::detail

#endif
