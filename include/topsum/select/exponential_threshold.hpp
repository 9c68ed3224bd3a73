// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: a sparsity-inducing distribution fitted in stages to the magnitudes gives the threshold.
#ifndef TOPSUM_SELECT_EXPONENTIAL_THRESHOLD_HPP
#define TOPSUM_SELECT_EXPONENTIAL_THRESHOLD_HPP

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
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/group_targets.hpp>
#include <topsum/detail/tail_fits.hpp>

namespace topsum {

/// What `exponential_threshold` fits to magnitudes; SIDCo's names in brackets.
enum class tail_fit : unsigned char {
  exponential,        ///< in every stage (SIDCo-E)
  gamma,              ///< gamma first, then generalized Pareto (SIDCo-GP)
  generalized_pareto  ///< in every stage (SIDCo-P)
};

/// Rule: |x| >= the quantile of a distribution fitted to the magnitudes. Each stage fits what lies above the threshold of the stage
/// before: all but the last aim at the share `first_ratio` of it, the last at k.
///
/// A group begins with `stages`; every `adapt_every` steps it gets one more, up to `max_stages`, where the entries selected differed
/// by more than `tolerance` from k on average. (The paper also takes stages away; ours only adds, as
/// a further stage looks closer at the tail.)
/// The last stage aims at k of the elements that were counted above the stage before it, so errors do not add up. Zeros are left out
/// of the fit and never travel. What is over `.at_most` (default k) is cut by magnitude. An estimate above the largest magnitude is
/// lowered to it, so that something travels from every group that is not zero.
/// Source: SIDCo (Abdelmoniem et al., MLSys'21).
/// Cost: one peek a stage, then one pass. Deterministic; the same bits for every instruction set of one backend, but not across
/// backends: it needs log and pow. Prefer `top_k`: exact, and cheaper.
struct exponential_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "exponential_threshold";
  static constexpr bool fixed_count = false;

  double density = 0.01;                 ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  tail_fit fit = tail_fit::exponential;  ///< the distribution
  double first_ratio = 0.25;             ///< share that a stage before the last leaves, in (0, 1)
  std::uint32_t stages = 1;              ///< stages at the start, from 1 to max_stages
  std::uint32_t max_stages = 5;          ///< at most so many peeks, at least 1
  std::uint64_t adapt_every = 5;         ///< steps from one change of a group's stages to the next, at least 1
  double tolerance = 0.2;                ///< accepted |selected/k - 1|, at least 0
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k, which it may lower

  template <class B, class R>
  struct state : detail::threshold_state<B, R> {
    state(B& backend, std::span<piece const> pieces)
        : detail::threshold_state<B, R>{backend, pieces},
          further{backend.template allocate<std::uint32_t>(total_groups(pieces))},
          selected{backend.template allocate<std::size_t>(total_groups(pieces))} {
      backend.fill(further.view(), std::uint32_t{0});
      backend.fill(selected.view(), std::size_t{0});
    }
    template <class V>
    void visit(V& visitor) {
      visitor("further", further);
      visitor("selected", selected);
    }
    typename B::template buffer<std::uint32_t> further;  // stages beyond the first ones
    typename B::template buffer<std::size_t> selected;   // entries since the stages were last looked at
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
    if (!(first_ratio > 0 && first_ratio < 1))
      throw error{errc::bad_argument, detail::sentence("exponential_threshold: .first_ratio = ", first_ratio,
                                                       " is outside (0, 1); write a share, e.g. 0.25")};
    if (stages == 0 || stages > max_stages)
      throw error{errc::bad_argument, detail::sentence("exponential_threshold: .stages = ", stages,
                                                       " is outside [1, .max_stages = ", max_stages, "]")};
    if (adapt_every == 0) throw error{errc::bad_argument, "exponential_threshold: .adapt_every = 0; write at least 1"};
    if (!(tolerance >= 0))
      throw error{errc::bad_argument, detail::sentence("exponential_threshold: .tolerance = ", tolerance,
                                                       " is negative; write a share of k, e.g. 0.2")};
  }

  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return std::min(size, at_most.value_or(count(size))); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step,
              state<B, R> const& before, state<B, R>& after, entries_view<B, R, I> out) const {
    detail::look_at_all(backend, from, pieces, after);
    for (std::uint32_t stage = 0; stage < max_stages; ++stage) {
      if (stage > 0) backend.moments(from, pieces, after.probes.view(), after.sums.view());
      backend.for_each(
          after.groups(),
          [rule = *this, stage](std::size_t, R& threshold, R& probe, moments const& m,
                                detail::group_target const& target, std::uint32_t const& further) {
            if (is_finite(probe)) rule.next_stage(stage, rule.stages + further, m, target, threshold, probe);
          },
          after.thresholds.view(), after.probes.view(), after.sums.view(), after.targets.view(), before.further.view());
    }
    backend.select_at_least(from, pieces, after.thresholds.view(), out, after.counts.view());
    bool const due = (step + 1) % adapt_every == 0;
    backend.for_each(
        after.groups(),
        [rule = *this, due](std::size_t, std::uint32_t& further, std::size_t& selected, std::uint32_t const& old,
                            std::size_t const& so_far, std::size_t const& now, detail::group_target const& target) {
          selected = due ? 0 : so_far + now;
          further = due && rule.misses(so_far + now, target.count) && rule.stages + old < rule.max_stages ? old + 1
                                                                                                          : old;
        },
        after.further.view(), after.selected.view(), before.further.view(), before.selected.view(), after.counts.view(),
        after.targets.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("fit", fit);
    out("first_ratio", first_ratio);
    out("stages", stages);
    out("max_stages", max_stages);
    out("adapt_every", adapt_every);
    out("tolerance", tolerance);
    out("at_most", at_most);
    out.close();
  }

 private:
  // Moves the threshold of a group with the moments of what lies above it; the last stage settles the probe.
  template <class R>
  void next_stage(std::uint32_t stage, std::uint32_t of, moments const& m, detail::group_target const& target,
                  R& threshold, R& probe) const {
    bool last = true;
    if (m.count > target.count) {
      double const needed = static_cast<double>(target.count) / static_cast<double>(m.count);
      last = stage + 1 >= of || needed >= first_ratio;
      auto const start = static_cast<double>(threshold);
      threshold = std::max(
          threshold, detail::bounded_threshold<R>(quantile(stage, m, start, last ? needed : first_ratio), m.largest));
    }
    probe = last ? detail::no_threshold<R> : threshold;
  }

  [[nodiscard]] double quantile(std::uint32_t stage, moments const& m, double start, double ratio) const {
    switch (fit) {
      case tail_fit::exponential: return detail::exponential_tail(m, start, ratio);
      case tail_fit::gamma: return stage == 0 ? detail::gamma_tail(m, ratio) : detail::pareto_tail(m, start, ratio);
      case tail_fit::generalized_pareto: return detail::pareto_tail(m, start, ratio);
    }
    return start;
  }

  // Whether so many entries over `adapt_every` steps are too far from k a step.
  [[nodiscard]] bool misses(std::size_t selected, std::size_t wanted) const {
    double const aim = static_cast<double>(wanted) * static_cast<double>(adapt_every);
    double const off = static_cast<double>(selected) - aim;
    return off > tolerance * aim || -off > tolerance * aim;
  }
};

}  // namespace topsum

#endif
