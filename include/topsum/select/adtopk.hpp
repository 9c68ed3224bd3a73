// SPDX-License-Identifier: BSL-1.0
/// \file
/// Selection policy: ADTopk's complete scheme.
#ifndef TOPSUM_SELECT_ADTOPK_HPP
#define TOPSUM_SELECT_ADTOPK_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/partition.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/error.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/all_dimension.hpp>
#include <topsum/select/global.hpp>
#include <topsum/select/layer_wise.hpp>
#include <topsum/select/top_k.hpp>

namespace topsum {

/// Selection policy: in even steps every dimension's own largest entries (`all_dimension`), in odd ones the largest of a whole
/// tensor, by a threshold that is reused for as long as it stays the same.
///
/// Odd steps select exactly while the plan warms up, and then whenever `tau` steps have passed since they last did; between, what
/// reaches the threshold of the last exact selection, at most k entries. After an exact step all ranks look at the same thing, the
/// result: its k-th magnitude in each tensor, against the last time. Changes of less than 5 % (of all tensors together) lengthen tau
/// by 2 steps, less than 10 % by 1; more than 10 % shorten it by 1, more than 20 % by 2, down to `.period`. A tensor whose change
/// was below 10 % is stable; in the last quarter of `.total_steps` stable tensors are selected by dimension in odd steps too
/// (exactly, as are the others then, so that who is stable does not change any more).
///
/// Source: ADTopk (Ming et al., HPDC'24, section 4). There each rank decides by its own thresholds, and each tensor has a tau of
/// its own; here ranks cannot part ways, and one pass selects from all tensors, so tau is one number.
/// Cost: one pass; after an exact odd step O(result) and one wait for the backend. Deterministic, the same tau on every rank.
/// The plan's k is that of a step in which each tensor is selected in the way that sends more.
/// Prefer `all_dimension` where every step must reach every dimension, `layer_wise` where dimensions are many and short.
struct adtopk {
  using stage_tag = selection_tag;
  static constexpr std::string_view name = "adtopk";
  static constexpr bool fixed_count = false;

  /// What shares a threshold, and is selected from as a whole, in odd steps.
  enum class whole : unsigned char { tensor, gradient };

  double density = 0.01;          ///< share of the values, in (0, 1]
  axis along = axis::second;      ///< which elements form a dimension, see `all_dimension`
  whole of = whole::tensor;       ///< the paper's is the tensor
  std::uint64_t warm_up = 15;     ///< steps at the beginning in which odd ones select exactly
  std::uint64_t period = 5;       ///< tau at the beginning, and its least; at least 1
  std::uint64_t total_steps = 0;  ///< of the training; 0: there is no last quarter

  /// Thresholds of this rank; tau, and what it follows from, of all ranks.
  template <class B, class R>
  struct state {
    state(B& backend, partition const& pieces)
        : thresholds{backend.template allocate<R>(wholes(pieces).size())},
          counts{backend.template allocate<std::size_t>(wholes(pieces).size())},
          least{backend.template allocate<R>(total_groups(pieces.parts[0]) + wholes(pieces).size())},
          seen{backend.template allocate<R>(wholes(pieces).size())},
          now(wholes(pieces).size()),
          last(wholes(pieces).size()),
          stable(wholes(pieces).size()) {
      backend.fill(thresholds.view(), R{0});
      mixed.reserve(pieces.parts[0].pieces.size());
    }
    template <class V>
    void visit(V& visitor) {
      visitor("thresholds", thresholds);
      visitor("last", last);
      visitor("stable", stable);
      visitor("tau", tau);
      visitor("since", since);
      visitor("looks", looks);
    }
    typename B::template buffer<R> thresholds;  // of this rank: smallest magnitude of the last exact selection
    typename B::template buffer<std::size_t> counts;
    typename B::template buffer<R> least;  // what an exact selection writes
    typename B::template buffer<R> seen;   // of the result, in the backend's memory
    std::vector<R> now;                    // and here
    std::vector<R> last;                   // the time before
    std::vector<std::uint8_t> stable;
    std::uint64_t tau = 0;    // 0: not begun
    std::uint64_t since = 0;  // steps since an odd step was exact
    std::uint64_t looks = 0;  // results looked at so far
    bool exact = false;       // this step is one, and mixes no tensors
    std::vector<piece> mixed;

   private:
    static std::span<piece const> wholes(partition const& pieces) { return pieces.parts[1]; }
  };

  void validate() const {
    static_cast<void>(density_parts(density, name));
    if (period == 0)
      throw error{errc::bad_argument, "adtopk: .period = 0; write at least 1 (steps between exact ones)"};
  }

  /// Two parts: the tensors' dimensions, and the tensors (or the gradient) as wholes.
  [[nodiscard]] partition pieces(layout const& shapes) const {
    top_k const rule{.density = density};
    partition rows{all_dimension{rule, {.along = along}}.pieces(shapes)};
    partition wholes{of == whole::tensor ? layer_wise{rule}.pieces(shapes) : global{rule}.pieces(shapes)};
    std::size_t mixed = std::max(rows.capacity, wholes.capacity);
    if (of == whole::tensor) {
      mixed = 0;
      for (std::size_t t = 0; t < rows.pieces.size(); ++t)
        mixed += std::max(sum_over_groups(rows.pieces[t], rows.pieces[t].capacity), wholes.pieces[t].capacity);
    }
    partition both{std::vector<partition>{std::move(rows), std::move(wholes)}};
    both.capacity = both.room = mixed;
    return both;
  }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, partition const& pieces, std::uint64_t step, state<B, R> const& before,
              state<B, R>& after, entries_view<B, R, I> out) const {
    take_over(backend, before, after);
    std::span<piece const> const rows = pieces.parts[0];
    std::span<piece const> const wholes = pieces.parts[1];
    if (step % 2 == 0) {
      backend.select_top_k(from, rows, out, after.least.view());
    } else if (is_late(step) && std::ranges::find(after.stable, 1) != after.stable.end()) {
      after.mixed.clear();
      for (std::size_t t = 0; t < rows.size(); ++t)
        after.mixed.push_back(of == whole::gradient || after.stable[t] != 0 ? rows[t] : wholes[t]);
      backend.select_top_k(from, std::span<piece const>{after.mixed}, out, after.least.view());
    } else if (step < warm_up || after.since >= after.tau || after.looks == 0) {
      after.exact = true;
      after.since = 0;
      backend.select_top_k(from, wholes, out, after.thresholds.view());
    } else {
      backend.select_at_least(from, wholes, after.thresholds.view(), out, after.counts.view());
    }
    ++after.since;
  }

  /// After an exact odd step: how far the result's magnitudes moved, the same on every rank.
  template <class B, class R, class I>
  void observe(B& backend, entries_view<B, R, I> result, partition const& pieces, std::uint64_t /*step*/,
               state<B, R>& after) const {
    if (!after.exact) return;
    std::span<piece const> const wholes = pieces.parts[1];
    backend.kth_of(result, wholes, after.seen.view());
    backend.read(after.seen.view(), std::span<R>{after.now});
    double moved = 0;
    double all = 0;
    for (std::size_t t = 0; t < wholes.size(); ++t) {
      double const now = static_cast<double>(after.now[t]);
      double const change = std::abs(now - static_cast<double>(after.last[t]));
      moved += change;
      all += now;
      after.stable[t] = after.looks != 0 && change < tolerance * now ? 1 : 0;
      after.last[t] = after.now[t];
    }
    if (after.looks++ == 0) return;
    double const bound = tolerance * all;
    if (moved < bound / 2) {
      after.tau += 2;
    } else if (moved < bound) {
      after.tau += 1;
    } else if (moved > bound) {
      std::uint64_t const less = moved > 2 * bound ? 2 : 1;
      after.tau = std::max(after.tau - std::min(after.tau, less), period);
    }
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("along", along);
    out("of", of);
    out("warm_up", warm_up);
    out("period", period);
    out("total_steps", total_steps);
    out.close();
  }

 private:
  static constexpr double tolerance = 0.1;  // eps over the threshold

  [[nodiscard]] bool is_late(std::uint64_t step) const noexcept {
    return total_steps != 0 && step >= total_steps - total_steps / 4;
  }

  template <class B, class R>
  void take_over(B& backend, state<B, R> const& before, state<B, R>& after) const {
    backend.copy(typename B::template span<R const>{before.thresholds.view()}, after.thresholds.view());
    std::ranges::copy(before.last, after.last.begin());
    std::ranges::copy(before.stable, after.stable.begin());
    after.tau = std::max(before.tau, period);
    after.since = before.since;
    after.looks = before.looks;
    after.exact = false;
  }
};

}  // namespace topsum

#endif
