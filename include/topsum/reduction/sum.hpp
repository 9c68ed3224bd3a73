// SPDX-License-Identifier: BSL-1.0
/// \file
/// Reduction: the sum over ranks.
#ifndef TOPSUM_REDUCTION_SUM_HPP
#define TOPSUM_REDUCTION_SUM_HPP

#include <string_view>

#include <topsum/core/stage.hpp>

namespace topsum {

/// Reduction: the sum over ranks, taken in `wide_t<T>` in an order fixed by the number of ranks and the owner alone.
/// Prefer `mean` when the learning rate should not depend on the number of ranks.
struct sum {
  using stage_tag = reduction_tag;
  static constexpr std::string_view name = "sum";
  void validate() const noexcept {}
  /// result = sum / divisor.
  [[nodiscard]] double divisor(int /*ranks*/) const noexcept { return 1; }
};

}  // namespace topsum

#endif
