// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: a threshold between mean and largest magnitude, bisected until it lets through enough and not too many.
#ifndef TOPSUM_SELECT_BISECTED_THRESHOLD_HPP
#define TOPSUM_SELECT_BISECTED_THRESHOLD_HPP

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

namespace topsum {

/// Rule: |x| >= t, where every `every` steps t is bisected between mean and largest |x| until k <= count < 2k; between, t is kept.
///
/// After `max_bisections` the lower end of what is left is taken, and 0 where no lower end was found (a spike dwarfs the rest, or
/// fewer than k reach the mean), so that a search never ends with fewer than k, if so many are not zero. What is over `.at_most`
/// (default k) is cut by magnitude: a step that searches then selects exactly the k largest; the paper sends up to 2k:
/// `.at_most = 2k`. Zeros never travel. Where a kept threshold let nothing through, the next step's is 0: the group's `.at_most`
/// largest travel.
/// Source: RedSync (Fang et al., JPDC'19), which also keeps thresholds for five steps.
/// Cost: one pass; a step that searches adds a peek for mean and largest and one for each bisection, typically 4 to 8.
/// Deterministic, the same bits on every backend. Prefer `top_k`: exact on every step, at one pass.
struct bisected_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "bisected_threshold";
  static constexpr bool fixed_count = false;

  double density = 0.01;                 ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  std::uint64_t every = 5;               ///< steps from one search to the next, at least 1
  std::uint32_t max_bisections = 10;     ///< peeks of a search
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k, which it may lower

  /// The interval that a search has left in a group.
  struct bracket {
    double low;    ///< lets 2k or more through, or 0
    double high;   ///< lets fewer than k through, or the largest magnitude
    double floor;  ///< the mean magnitude: where the search begins
  };

  template <class B, class R>
  struct state : detail::threshold_state<B, R> {
    state(B& backend, std::span<piece const> pieces)
        : detail::threshold_state<B, R>{backend, pieces},
          brackets{backend.template allocate<bracket>(total_groups(pieces))} {
      backend.fill(brackets.view(), bracket{});
    }
    typename B::template buffer<bracket> brackets;
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
    if (every == 0)
      throw error{errc::bad_argument, "bisected_threshold: .every = 0; write at least 1 (1 searches on every step)"};
  }

  [[nodiscard]] std::size_t count(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return std::min(size, at_most.value_or(count(size))); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step,
              state<B, R> const& before, state<B, R>& after, entries_view<B, R, I> out) const {
    if (step % every == 0) {
      search(backend, from, pieces, after);
    } else {
      backend.for_each(
          after.groups(),
          [](std::size_t, R& threshold, R const& last, std::size_t const& selected,
             detail::group_target const& target) {
            threshold = target.count == 0 ? detail::no_threshold<R> : selected == 0 ? R{0} : last;
          },
          after.thresholds.view(), before.thresholds.view(), before.counts.view(), after.targets.view());
    }
    backend.select_at_least(from, pieces, after.thresholds.view(), out, after.counts.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("every", every);
    out("max_bisections", max_bisections);
    out("at_most", at_most);
    out.close();
  }

 private:
  template <class B, class Source, class R>
  void search(B& backend, Source const& from, std::span<piece const> pieces, state<B, R>& s) const {
    detail::look_at_all(backend, from, pieces, s);
    backend.for_each(
        s.groups(),
        [](std::size_t, R& probe, bracket& b, moments const& m, detail::group_target const& target) {
          if (!is_finite(probe)) return;
          b = {0, m.largest, m.sum_magnitude / static_cast<double>(target.size)};
          probe = middle_of<R>(b);
          if (!(probe > 0)) probe = detail::no_threshold<R>;  // all zero
        },
        s.probes.view(), s.brackets.view(), s.sums.view(), s.targets.view());
    for (std::uint32_t i = 0; i < max_bisections; ++i) {
      backend.moments(from, pieces, s.probes.view(), s.sums.view());
      backend.for_each(
          s.groups(),
          [](std::size_t, R& threshold, R& probe, bracket& b, moments const& m, detail::group_target const& target) {
            if (!is_finite(probe)) return;
            if (m.count >= target.count) threshold = probe;
            if (m.count >= target.count && m.count < 2 * target.count) {
              probe = detail::no_threshold<R>;
              return;
            }
            (m.count < target.count ? b.high : b.low) = static_cast<double>(probe);
            R const next = middle_of<R>(b);
            probe = next != probe ? next : detail::no_threshold<R>;
          },
          s.thresholds.view(), s.probes.view(), s.brackets.view(), s.sums.view(), s.targets.view());
    }
  }

  // Between 0 and the largest magnitude, even where the mean came out above it by rounding or overflow.
  template <class R>
  static R middle_of(bracket const& b) {
    double const low = std::max(b.low, b.floor);
    return detail::bounded_threshold<R>(low + (b.high - low) / 2, b.high);
  }
};

}  // namespace topsum

#endif
