// SPDX-License-Identifier: BSL-1.0
/// \file
/// Quantiles of the normal distribution, computed on the host while a plan is made.
#ifndef TOPSUM_DETAIL_NORMAL_QUANTILE_HPP
#define TOPSUM_DETAIL_NORMAL_QUANTILE_HPP

#include <cmath>

namespace topsum::detail {

/// z with P(|Z| >= z) = p for a standard normal Z, 0 < p <= 1: by bisection, to the last bit that erfc tells apart.
[[nodiscard]] inline double normal_quantile(double p) noexcept {
  double low = 0;
  double high = 40;  // erfc is 0 there
  for (int i = 0; i < 60; ++i) {
    double const middle = low + (high - low) / 2;
    (std::erfc(middle / 1.4142135623730951) >= p ? low : high) = middle;
  }
  return low;
}

}  // namespace topsum::detail

#endif
