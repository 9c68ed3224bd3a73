// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: the k-th magnitude of an earlier step as this step's threshold.
#ifndef TOPSUM_SELECT_REUSED_THRESHOLD_HPP
#define TOPSUM_SELECT_REUSED_THRESHOLD_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// Rule: every `every` steps the exact k-th magnitude of each group becomes its threshold; between, |x| >= threshold.
///
/// Between refreshes a threshold that let through less than 2k/3 entries is divided by `nudge` for the next step, more than
/// 5k/4 multiplied. Zeros never travel. What is over `.at_most` (default k) is cut by magnitude.
/// Source: Ok-Topk (Li & Hoefler, PPoPP'22, section 3.1.3; its reference code has the nudge).
/// Cost: one pass over memory. Deterministic. Prefer `top_k`, which costs the same and holds the count on every step.
struct reused_threshold {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "reused_threshold";
  static constexpr bool fixed_count = false;

  double density = 0.01;           ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};  ///< a count instead of a density
  std::uint64_t every = 32;        ///< steps from one exact threshold to the next, at least 1
  double nudge = 1.012;            ///< factor that follows a drifting count, at least 1; 1 switches it off
  std::optional<std::size_t>
      at_most{};  ///< entries that may travel from a piece; default k. Less than k lowers k to it

  template <class B, class R>
  struct state {
    state(B& backend, std::span<piece const> pieces)
        : thresholds{backend.template allocate<R>(total_groups(pieces))},
          counts{backend.template allocate<std::size_t>(total_groups(pieces))},
          targets{backend.template allocate<std::size_t>(total_groups(pieces))} {
      backend.fill(thresholds.view(), R{0});
      std::size_t first = 0;
      for (piece const& p : pieces) {
        std::size_t const groups = group_count(p);
        backend.fill(targets.view().subspan(first, groups), p.count);
        first += groups;
      }
    }
    template <class V>
    void visit(V& visitor) {
      visitor("thresholds", thresholds);
    }
    typename B::template buffer<R> thresholds;
    typename B::template buffer<std::size_t> counts;   // selected before the cut, in the last step
    typename B::template buffer<std::size_t> targets;  // k of each group
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
    if (every == 0)
      throw error{errc::bad_argument, "reused_threshold: .every = 0; write at least 1 (1 is exact on every step)"};
    if (!(nudge >= 1.0 && nudge <= 2.0))
      throw error{errc::bad_argument, detail::sentence("reused_threshold: .nudge = ", nudge, " is outside [1, 2]")};
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
      backend.select_top_k(from, pieces, out, after.thresholds.view());
      bits_t<R> const smallest_nonzero = 1;
      backend.keep_at_least(out, smallest_nonzero, out.capacity(), out);
      return;
    }
    backend.select_at_least(from, pieces, before.thresholds.view(), out, after.counts.view());
    backend.for_each(
        before.thresholds.size(),
        [factor = static_cast<R>(nudge)](std::size_t, R& next, R const& last, std::size_t const& selected,
                                         std::size_t const& target) {
          next = 3 * selected < 2 * target ? last / factor : 4 * selected > 5 * target ? last * factor : last;
        },
        after.thresholds.view(), before.thresholds.view(), after.counts.view(), after.targets.view());
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("every", every);
    out("nudge", nudge);
    out("at_most", at_most);
    out.close();
  }
};

}  // namespace topsum

#endif
