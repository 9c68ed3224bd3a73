// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: the quantile of a normal distribution with the group's mean and variance as threshold, adapted by counting.
#ifndef TOPSUM_SELECT_GAUSSIAN_THRESHOLD_HPP
#define TOPSUM_SELECT_GAUSSIAN_THRESHOLD_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/group_targets.hpp>
#include <topsum/detail/normal_quantile.hpp>

namespace topsum {

/// Rule: |x| >= |mean| + z deviation, where a normal variable is beyond z deviations, on either side, with probability k/size.
///
/// A threshold that lets fewer than 2k/3 through is halved, `max_adaptations` times at most. What is over `.at_most` (default k) is
/// cut by magnitude; only where that leaves room for more than 4k/3 is a threshold that lets more through multiplied by 1.5, and
/// taken back if then too few come. Zeros never travel. An estimate above the largest magnitude is lowered to it, so that something
/// travels from every group that is not zero.
/// Source: Gaussian-k (Shi et al., arXiv:1911.08772, algorithm 1).
/// Cost: one peek for the moments, one to three to count, one pass.
/// Deterministic, the same bits on every backend. Prefer `top_k`: exact, and cheaper.
struct gaussian_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "gaussian_threshold";
  static constexpr bool fixed_count = false;

  double density = 0.01;                 ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  std::uint32_t max_adaptations = 3;     ///< peeks that may move the threshold; 0 takes the distribution's word
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k, which it may lower

  template <class B, class R>
  struct state : detail::threshold_state<B, R> {
    state(B& backend, std::span<piece const> pieces)
        : detail::threshold_state<B, R>{backend, pieces},
          quantiles{detail::placed(backend, quantiles_of(detail::group_targets(pieces)))} {}
    typename B::template buffer<double> quantiles;  // z of each group
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
  }

  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return std::min(size, at_most.value_or(count(size))); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t /*step*/,
              state<B, R> const& /*before*/, state<B, R>& after, entries_view<B, R, I> out) const {
    detail::look_at_all(backend, from, pieces, after);
    backend.for_each(
        after.groups(),
        [](std::size_t, R& threshold, R& probe, moments const& m, detail::group_target const& target, double const& z) {
          if (target.count == 0) return;
          auto const n = static_cast<double>(target.size);
          double const mean = m.sum / n;
          double const variance = multiply_then_add(-mean, mean, m.sum_squares / n);
          double const deviation = variance > 0 ? std::sqrt(variance) : 0.0;
          threshold = detail::bounded_threshold<R>(multiply_then_add(z, deviation, std::abs(mean)), m.largest);
          probe = threshold > 0 ? threshold : detail::no_threshold<R>;
        },
        after.thresholds.view(), after.probes.view(), after.sums.view(), after.targets.view(), after.quantiles.view());
    detail::adapt_thresholds(backend, from, pieces, after, max_adaptations, {2.0 / 3, 4.0 / 3, 0.5, 1.5});
    backend.select_at_least(from, pieces, after.thresholds.view(), out, after.counts.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("max_adaptations", max_adaptations);
    out("at_most", at_most);
    out.close();
  }

 private:
  static std::vector<double> quantiles_of(std::vector<detail::group_target> const& targets) {
    std::vector<double> all;
    all.reserve(targets.size());
    for (std::size_t g = 0; g < targets.size(); ++g) {
      detail::group_target const t = targets[g];
      bool const as_before = g > 0 && t.size == targets[g - 1].size && t.count == targets[g - 1].count;
      all.push_back(t.count == 0 ? 0.0
                    : as_before  ? all.back()
                                 : detail::normal_quantile(static_cast<double>(t.count) / static_cast<double>(t.size)));
    }
    return all;
  }
};

}  // namespace topsum

#endif
