// SPDX-License-Identifier: BSL-1.0
/// \file
/// What rules that estimate thresholds keep of each group, in a backend's memory.
#ifndef TOPSUM_DETAIL_GROUP_TARGETS_HPP
#define TOPSUM_DETAIL_GROUP_TARGETS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <topsum/core/memory.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>

namespace topsum::detail {

/// What a rule aims at in one group.
struct group_target {
  std::size_t size;      ///< values
  std::size_t count;     ///< k
  std::size_t capacity;  ///< entries that may travel
};

/// The targets of all groups, in order, on the host.
[[nodiscard]] inline std::vector<group_target> group_targets(std::span<piece const> pieces) {
  std::vector<group_target> all;
  all.reserve(total_groups(pieces));
  for (piece const& p : pieces) {
    for (std::size_t i = 0; i < group_count(p); ++i) {
      std::size_t const size = group_at(p, i).size();
      all.push_back({size, std::min(p.count, size), std::min(p.capacity, size)});
    }
  }
  return all;
}

/// Values of the host in a backend's memory. Allocates.
template <class V, class B>
[[nodiscard]] typename B::template buffer<V> placed(B& backend, std::vector<V> const& values) {
  auto memory = backend.template allocate<V>(values.size());
  backend.write(host_span<V const>{values}, memory.view());
  return memory;
}

/// The threshold that selects nothing, and that `moments` does not read a group for.
template <class R>
inline constexpr R no_threshold = from_magnitude<R>(nonfinite_magnitude<R>);

/// An estimate as a threshold: at least 0, and at most the group's largest magnitude, so that something is always selected from a
/// group that is not zero. An estimate that is not a number, or infinite, becomes that largest magnitude.
template <class R>
[[nodiscard]] constexpr R bounded_threshold(double estimate, double largest) noexcept {
  if (!is_finite(estimate) || estimate > largest) return static_cast<R>(largest);
  return estimate > 0 ? static_cast<R>(estimate) : R{0};
}

/// What a threshold that is adapted by counting needs for each group: thresholds, where to count next (not finite: settled), what
/// was counted, and what was selected before the cut.
template <class B, class R>
struct threshold_state {
  threshold_state(B& backend, std::span<piece const> pieces)
      : thresholds{backend.template allocate<R>(total_groups(pieces))},
        probes{backend.template allocate<R>(total_groups(pieces))},
        sums{backend.template allocate<moments>(total_groups(pieces))},
        counts{backend.template allocate<std::size_t>(total_groups(pieces))},
        targets{placed(backend, group_targets(pieces))} {
    backend.fill(thresholds.view(), R{0});
    backend.fill(probes.view(), no_threshold<R>);
    backend.fill(sums.view(), moments{});
    backend.fill(counts.view(), std::size_t{0});
  }
  [[nodiscard]] std::size_t groups() const { return thresholds.size(); }
  template <class V>
  void visit(V& visitor) {
    visitor("thresholds", thresholds);
    visitor("counts", counts);
  }

  typename B::template buffer<R> thresholds;
  typename B::template buffer<R> probes;
  typename B::template buffer<moments> sums;
  typename B::template buffer<std::size_t> counts;
  typename B::template buffer<group_target> targets;
};

/// Looks at all elements of groups that aim at anything: `sums` become theirs, other groups are settled.
template <class B, class Source, class R>
void look_at_all(B& backend, Source const& from, std::span<piece const> pieces, threshold_state<B, R>& s) {
  backend.for_each(
      s.groups(),
      [](std::size_t, R& threshold, R& probe, group_target const& target) {
        threshold = probe = target.count == 0 ? no_threshold<R> : R{0};
      },
      s.thresholds.view(), s.probes.view(), s.targets.view());
  backend.moments(from, pieces, s.probes.view(), s.sums.view());
}

/// How counting moves a threshold.
struct adaptation {
  double fewest;  ///< a threshold that lets fewer than this share of k through is lowered
  double most;    ///< one that lets more than this multiple of k through is raised, where so many may travel
  double lower;   ///< the factors
  double raise;

  /// Moves the threshold of one group by what was counted at its probe, or settles the probe. A raised threshold that lets too few
  /// through is taken back, so that threshold and count never swing.
  template <class R>
  void operator()(R& threshold, R& probe, moments const& m, group_target const& target) const {
    auto const wanted = static_cast<double>(target.count);
    auto const found = static_cast<double>(m.count);
    if (found < fewest * wanted) {
      bool const was_raised = threshold < probe;
      if (!was_raised) threshold = static_cast<R>(static_cast<double>(threshold) * lower);
      probe = was_raised || !(threshold > 0) ? no_threshold<R> : threshold;
      return;
    }
    threshold = probe;
    bool const too_many = found > most * wanted && static_cast<double>(target.capacity) > most * wanted;
    R const raised = too_many ? bounded_threshold<R>(static_cast<double>(probe) * raise, m.largest) : probe;
    probe = raised > probe ? raised : no_threshold<R>;
  }
};

/// Counts at the probes and moves the thresholds of groups that are not settled, `times` times.
template <class B, class Source, class R>
void adapt_thresholds(B& backend, Source const& from, std::span<piece const> pieces, threshold_state<B, R>& s,
                      std::uint32_t times, adaptation how) {
  for (std::uint32_t i = 0; i < times; ++i) {
    backend.moments(from, pieces, s.probes.view(), s.sums.view());
    backend.for_each(
        s.groups(),
        [how](std::size_t, R& threshold, R& probe, moments const& m, group_target const& target) {
          if (is_finite(probe)) how(threshold, probe, m, target);
        },
        s.thresholds.view(), s.probes.view(), s.sums.view(), s.targets.view());
  }
}

}  // namespace topsum::detail

#endif
