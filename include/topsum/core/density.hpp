// SPDX-License-Identifier: BSL-1.0
/// \file
/// How many entries a rule selects: a density or a count, in integers only.
#ifndef TOPSUM_CORE_DENSITY_HPP
#define TOPSUM_CORE_DENSITY_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <topsum/error.hpp>

namespace topsum {

/// Parts per 10^9: densities are held so, since a product of doubles is off in ordinary cases (0.29 * 100 is below 29).
inline constexpr std::uint64_t density_unit = 1'000'000'000;

/// `density` in (0, 1] as parts per 10^9, rounded to nearest. Throws `errc::bad_argument` elsewhere, NaN included.
[[nodiscard]] inline std::uint64_t density_parts(double density, std::string_view who) {
  if (!(density > 0.0 && density <= 1.0)) {
    throw error{errc::bad_argument,
                detail::sentence(who, ": .density = ", density,
                                 " is outside (0, 1]; write a share of the values, e.g. .density = 0.01")};
  }
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(density * 1e9)));
}

/// floor(parts * size / 10^9) clamped to [1, size]; 0 for size = 0. Exact for every 64-bit size.
[[nodiscard]] constexpr std::size_t density_count(std::uint64_t parts, std::size_t size) noexcept {
  if (size == 0) return 0;
  std::uint64_t const whole = size / density_unit;
  std::uint64_t const rest = size % density_unit;
  std::uint64_t const k = whole * parts + rest * parts / density_unit;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(k, 1, size));
}

/// Entries to select from a piece of `size` values: the count `k` where one is given (at most `size`), else by density.
[[nodiscard]] inline std::size_t selected_count(double density, std::optional<std::size_t> k, std::size_t size,
                                                std::string_view who) {
  if (k.has_value()) return std::min(*k, size);
  return density_count(density_parts(density, who), size);
}

}  // namespace topsum

#endif
