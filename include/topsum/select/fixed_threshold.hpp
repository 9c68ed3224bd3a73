// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: a threshold that the user gives.
#ifndef TOPSUM_SELECT_FIXED_THRESHOLD_HPP
#define TOPSUM_SELECT_FIXED_THRESHOLD_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Rule: |x| >= `threshold`, the same number on every step and in every group: few entries where little has gathered, many where much.
///
/// What is over `.at_most` (default k) is cut by magnitude. Zeros never travel. Fewer than k is as the rule means it; but where
/// nothing reached the threshold, the group's next one is `lowering` times as high, again and again until something does: then it is
/// `threshold` again. So a threshold above everything costs steps, not the training.
/// Source: Sahu et al., "Rethinking gradient sparsification as total error minimization" (NeurIPS'21), with `.lowering = 1`.
/// Cost: one pass. Deterministic, the same bits on every backend.
/// Choose it with `error_feedback` when the error over a whole training matters more than the bytes of a step; else `top_k`.
struct fixed_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "fixed_threshold";
  static constexpr bool fixed_count = false;

  double threshold = 0;                  ///< magnitude from which values travel, above 0; must be given
  double density = 0.01;                 ///< share of the values that may travel, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  double lowering = 0.5;                 ///< factor after a step that selected nothing, in (0, 1]; 1 keeps to the paper
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k, which it may lower

  template <class B, class R>
  struct state {
    state(B& backend, std::span<piece const> pieces)
        : thresholds{backend.template allocate<R>(total_groups(pieces))},
          factors{backend.template allocate<R>(total_groups(pieces))},
          counts{backend.template allocate<std::size_t>(total_groups(pieces))} {
      backend.fill(thresholds.view(), R{0});
      backend.fill(factors.view(), R{1});
      backend.fill(counts.view(), std::size_t{0});
    }
    template <class V>
    void visit(V& visitor) {
      visitor("factors", factors);
    }
    typename B::template buffer<R> thresholds;
    typename B::template buffer<R> factors;  // of the next step
    typename B::template buffer<std::size_t> counts;
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
    if (!(threshold > 0 && is_finite(threshold)))
      throw error{errc::bad_argument,
                  detail::sentence("fixed_threshold: .threshold = ", threshold,
                                   "; write the magnitude from which values travel, e.g. .threshold = 0.01")};
    if (!(lowering > 0 && lowering <= 1))
      throw error{errc::bad_argument, detail::sentence("fixed_threshold: .lowering = ", lowering,
                                                       " is outside (0, 1]; write a factor, e.g. 0.5")};
  }

  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return std::min(size, at_most.value_or(count(size))); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t /*step*/,
              state<B, R> const& before, state<B, R>& after, entries_view<B, R, I> out) const {
    backend.for_each(
        after.thresholds.size(),
        [given = static_cast<R>(threshold)](std::size_t, R& now, R const& factor) { now = given * factor; },
        after.thresholds.view(), before.factors.view());
    backend.select_at_least(from, pieces, after.thresholds.view(), out, after.counts.view());
    backend.for_each(
        after.thresholds.size(),
        [less = static_cast<R>(lowering)](std::size_t, R& next, R const& factor, std::size_t const& selected) {
          next = selected == 0 ? factor * less : R{1};
        },
        after.factors.view(), before.factors.view(), after.counts.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("threshold", threshold);
    out("density", density);
    out("k", k);
    out("lowering", lowering);
    out("at_most", at_most);
    out.close();
  }
};

}  // namespace topsum

#endif
