// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: the k-th magnitude of a sample as threshold, adapted by counting.
#ifndef TOPSUM_SELECT_SAMPLED_THRESHOLD_HPP
#define TOPSUM_SELECT_SAMPLED_THRESHOLD_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/group_targets.hpp>

namespace topsum {

/// Rule: |x| >= the k-th magnitude of a sample of the group, another sample on every step; a threshold that lets fewer than
/// `lower_bound` k through is multiplied by `lower_bound`, again and again, `max_adaptations` times at most.
///
/// What is over `.at_most` (default k) is cut by magnitude: the paper's hierarchical selection. Only where `.at_most` leaves room
/// for more than `upper_bound` k is a threshold that lets more through multiplied by `upper_bound`, and taken back if then too few
/// come. Zeros never travel. Where a group's sample is all zero its threshold is 0: the largest elements travel. As no threshold
/// is above the largest magnitude, something travels from every group that is not zero.
/// Source: DGC (Lin et al., arXiv:1712.01887), whose sample is strided; ours draws one element a stride.
/// Cost: the sample (each element a cache line; in groups of a few thousand values more than a pass), one to three peeks, one pass.
/// Deterministic, the same bits on every backend. Prefer `top_k`: exact, and cheaper.
struct sampled_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "sampled_threshold";
  static constexpr bool fixed_count = false;

  double density = 0.01;           ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};  ///< a count instead of a density
  double sample_ratio = 0.01;      ///< share of the values to look at, in (0, 1]; never fewer than 2/density of them
  double lower_bound = 0.8;        ///< accepted share of k, and factor, in (0, 1]
  double upper_bound = 1.3;        ///< accepted multiple of k, and factor, at least 1
  std::uint32_t max_adaptations = 10;    ///< peeks that may move the threshold; 0 takes the sample's word
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k, which it may lower

  template <class B, class R>
  using state = detail::threshold_state<B, R>;

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
    if (!(sample_ratio > 0 && sample_ratio <= 1))
      throw error{errc::bad_argument, detail::sentence("sampled_threshold: .sample_ratio = ", sample_ratio,
                                                       " is outside (0, 1]; write a share of the values, e.g. 0.01")};
    if (!(lower_bound > 0 && lower_bound <= 1))
      throw error{errc::bad_argument, detail::sentence("sampled_threshold: .lower_bound = ", lower_bound,
                                                       " is outside (0, 1]; write a share of k, e.g. 0.8")};
    if (!(upper_bound >= 1 && is_finite(upper_bound)))
      throw error{errc::bad_argument, detail::sentence("sampled_threshold: .upper_bound = ", upper_bound,
                                                       " is not at least 1; write a multiple of k, e.g. 1.3")};
  }

  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return std::min(size, at_most.value_or(count(size))); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step,
              state<B, R> const& /*before*/, state<B, R>& after, entries_view<B, R, I> out) const {
    backend.sample_kth(from, pieces, sampling{density_parts(sample_ratio, name), step}, after.thresholds.view());
    backend.for_each(
        after.groups(),
        [](std::size_t, R& threshold, R& probe, detail::group_target const& target) {
          if (target.count == 0) threshold = detail::no_threshold<R>;
          probe = threshold > 0 ? threshold : detail::no_threshold<R>;
        },
        after.thresholds.view(), after.probes.view(), after.targets.view());
    detail::adapt_thresholds(backend, from, pieces, after, max_adaptations,
                             {lower_bound, upper_bound, lower_bound, upper_bound});
    backend.select_at_least(from, pieces, after.thresholds.view(), out, after.counts.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("sample_ratio", sample_ratio);
    out("lower_bound", lower_bound);
    out("upper_bound", upper_bound);
    out("max_adaptations", max_adaptations);
    out("at_most", at_most);
    out.close();
  }
};

}  // namespace topsum

#endif
