// SPDX-License-Identifier: BSL-1.0
/// \file
/// Reduction: the mean over ranks.
#ifndef TOPSUM_REDUCTION_MEAN_HPP
#define TOPSUM_REDUCTION_MEAN_HPP

#include <string_view>

#include <topsum/core/stage.hpp>

namespace topsum {

/// Reduction: the sum over ranks divided by their number: a rank that sent no entry counts as zero. The default.
struct mean {
  using stage_tag = reduction_tag;
  static constexpr std::string_view name = "mean";
  void validate() const noexcept {}
  /// result = sum / divisor.
  [[nodiscard]] double divisor(int ranks) const noexcept { return ranks; }
};

}  // namespace topsum

#endif
