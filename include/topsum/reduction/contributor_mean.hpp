// SPDX-License-Identifier: BSL-1.0
/// \file
/// Reduction: the mean over the ranks that sent an entry.
#ifndef TOPSUM_REDUCTION_CONTRIBUTOR_MEAN_HPP
#define TOPSUM_REDUCTION_CONTRIBUTOR_MEAN_HPP

#include <string_view>

#include <topsum/core/stage.hpp>

namespace topsum {

/// Reduction: each entry's sum divided by the number of ranks that sent it: who did not select an entry is not counted as zero.
///
/// Source: DeMo (Peng et al., 2024), SparseLoCo (Sarfi et al., 2025). Entries that few ranks select are not damped by the others, so
/// steps are larger than under `mean`, up to P times where selections are disjoint. Residuals lose what was sent, as always.
/// Asks for an exchange that knows who sent what: `gather_all`. Cost: another merge of the ranks' indices. Deterministic.
struct contributor_mean {
  using stage_tag = reduction_tag;
  static constexpr std::string_view name = "contributor_mean";
  static constexpr bool by_contributors = true;
  void validate() const noexcept {}
  /// result = sum / divisor.
  [[nodiscard]] double divisor(int contributors) const noexcept { return contributors; }
};

}  // namespace topsum

#endif
