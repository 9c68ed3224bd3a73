// SPDX-License-Identifier: BSL-1.0
/// \file
/// Value codec: the number of a bin whose mean travels.
#ifndef TOPSUM_CODEC_LOOKUP_HPP
#define TOPSUM_CODEC_LOOKUP_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Value codec: 2^Bits equal bins over three standard deviations to either side of the mean; values outside belong to the outermost
/// bins. A message carries each bin's mean, which stands for its values.
///
/// `Bits` bits a value and 2^Bits * sizeof(R) bytes a message: for messages of many more entries than bins. The sum of a message
/// survives up to rounding. Means and deviation are summed in double, in order. Lossy.
/// Source: SparseLoCo (Sarfi et al., arXiv 2508.15706), whose 2 bits are `lookup<2>`.
template <int Bits>
struct lookup {
  static_assert(Bits >= 2 && Bits <= 8, "topsum: lookup<Bits> takes 2 to 8 bits a value");
  using stage_tag = value_codec_tag;
  static constexpr std::string_view name = "lookup";
  static constexpr bool lossless = false;
  static constexpr std::size_t bins = std::size_t{1} << Bits;
  /// The bins: their means, where they begin, how wide they are.
  template <class R>
  struct header {
    std::array<R, bins> means{};
    R low = 0;   ///< where the first bin begins
    R step = 0;  ///< width of a bin; 0: one bin takes all
  };
  template <class R>
  static constexpr int bits = Bits;

  void validate() const noexcept {}

  template <class R>
  [[nodiscard]] header<R> summarise(R const* values, std::size_t count) const noexcept {
    double const n = static_cast<double>(std::max<std::size_t>(count, 1));
    double mean = 0;
    for (std::size_t i = 0; i < count; ++i) mean += static_cast<double>(values[i]) / n;
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double const off = static_cast<double>(values[i]) - mean;
      squares += off * off / n;
    }
    double const deviation = std::sqrt(squares);
    header<R> table;
    table.low = static_cast<R>(mean - 3 * deviation);
    table.step = static_cast<R>(6 * deviation / static_cast<double>(bins));
    std::array<double, bins> sums{};
    std::array<std::size_t, bins> counts{};
    for (std::size_t i = 0; i < count; ++i) {
      auto const bin = static_cast<std::size_t>(code(table, values[i], 0));
      sums[bin] += static_cast<double>(values[i]);
      ++counts[bin];
    }
    for (std::size_t b = 0; b < bins; ++b)
      table.means[b] = counts[b] == 0 ? R{0} : static_cast<R>(sums[b] / static_cast<double>(counts[b]));
    return table;
  }
  template <class R>
  [[nodiscard]] std::uint64_t code(header<R> const& table, R value, std::uint64_t /*index*/) const noexcept {
    R const place = table.step > 0 ? (value - table.low) / table.step : R{0};
    if (!(place > 0)) return 0;
    return static_cast<std::uint64_t>(std::min(place, static_cast<R>(bins - 1)));
  }
  template <class R>
  [[nodiscard]] R value(header<R> const& table, std::uint64_t code) const noexcept {
    return table.means[static_cast<std::size_t>(code) % bins];
  }

  void describe(description& out) const {
    out.open(name);
    out("bits", Bits);
    out.close();
  }
};

}  // namespace topsum

#endif
