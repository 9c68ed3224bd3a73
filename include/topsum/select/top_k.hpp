// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: exactly the k largest magnitudes.
#ifndef TOPSUM_SELECT_TOP_K_HPP
#define TOPSUM_SELECT_TOP_K_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/interleaving.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Rule: exactly the k largest magnitudes of each group, ties to the smaller index; zeros count, so k is always met.
///
/// k = clamp(floor(density * size), 1, size), or `.k` where given (0 selects nothing), never above `.at_most`.
/// Cost: about one pass over memory, no state from earlier steps. Deterministic; the count is known without asking.
/// The default rule; prefer `reused_threshold` to follow Ok-Topk to the letter.
struct top_k {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "top_k";
  static constexpr bool fixed_count = true;

  double density = 0.01;                 ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a piece; default k

  /// The smallest magnitude that each group selected.
  template <class B, class R>
  struct state {
    state(B& backend, std::span<piece const> pieces) : thresholds{backend.template allocate<R>(total_groups(pieces))} {
      backend.fill(thresholds.view(), R{0});
    }
    template <class V>
    void visit(V& visitor) {
      visitor("thresholds", thresholds);
    }
    typename B::template buffer<R> thresholds;
  };

  void validate() const {
    if (!k.has_value()) static_cast<void>(density_parts(density, name));
  }

  [[nodiscard]] std::size_t count(std::size_t size) const { return capacity(size); }

  [[nodiscard]] std::size_t capacity(std::size_t size) const {
    std::size_t const wanted = selected_count(density, k, size, name);
    return std::min(wanted, at_most.value_or(wanted));
  }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t /*step*/,
              state<B, R> const& /*before*/, state<B, R>& after, entries_view<B, R, I> out) const {
    backend.select_top_k(from, pieces, out, after.thresholds.view());
  }

  /// Each owner's share instead, for an exchange that works by quotas.
  template <class B, class Source, class R, class I>
  void select_quotas(B& backend, Source const& from, quotas const& wanted, entries_view<B, R, I> out) const {
    backend.select_quotas(from, wanted, out);
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("at_most", at_most);
    out.close();
  }
};

}  // namespace topsum

#endif
