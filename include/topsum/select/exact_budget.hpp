// SPDX-License-Identifier: BSL-1.0
/// \file
/// Selection policy: a scope of many groups that together send exactly k entries.
#ifndef TOPSUM_SELECT_EXACT_BUDGET_HPP
#define TOPSUM_SELECT_EXACT_BUDGET_HPP

#include <algorithm>
#include <concepts>
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
#include <topsum/select/top_k.hpp>

namespace topsum {

/// Selection policy: every group of `within` selects its floor(density * size) largest entries, none where that is 0, and the
/// groups whose next entry is largest send that one too, until all groups together send k = clamp(floor(density * n), 1, n).
///
///     topsum::exact_budget{topsum::all_dimension{topsum::top_k{.density = 0.001}}}
///
/// Per-group scopes send at least one entry a group, which on short rows is many times the density asked for; this holds the
/// density instead, and gives up the promise of one entry a group. Groups that a scope would send whole (biases under
/// `all_dimension`) have no privilege here. Equal next magnitudes: the group that begins first.
/// `Scope` is `layer_wise`, `all_dimension` or `chunked` over `top_k` with a density. Cost: one pass, and O(entries + groups).
/// Deterministic; the count is known without asking.
template <class Scope>
struct exact_budget {
  using stage_tag = selection_tag;
  static constexpr std::string_view name = "exact_budget";
  static constexpr bool fixed_count = true;
  static_assert(std::same_as<decltype(Scope::rule), top_k>,
                "topsum: exact_budget shares one k among groups that select exactly: write "
                "exact_budget{layer_wise{top_k{.density = ...}}}, or another scope over top_k");

  Scope within{};

  constexpr explicit exact_budget(Scope scope = {}) : within{std::move(scope)} {}

  /// Magnitude of each group's last candidate, and which groups lose it: nothing that outlives a step.
  template <class B, class R>
  struct state {
    state(B& backend, partition const& pieces)
        : next{backend.template allocate<R>(total_groups(pieces))},
          drop{backend.template allocate<R>(total_groups(pieces))},
          best{backend, total_groups(pieces)},
          places{backend.template allocate<std::uint32_t>(total_groups(pieces))},
          groups{backend.template allocate<std::size_t>(1)},
          dropped{pieces.room - pieces.capacity} {
      backend.fill(groups.view(), total_groups(pieces));
      backend.for_each(
          places.size(), [](std::size_t g, std::uint32_t& place) { place = static_cast<std::uint32_t>(g); },
          places.view());
      backend.template reserve_lists<R, std::uint32_t>(1, total_groups(pieces));
    }
    template <class V>
    void visit(V&) {}
    typename B::template buffer<R> next;
    typename B::template buffer<R> drop;
    entries<B, R, std::uint32_t> best;
    typename B::template buffer<std::uint32_t> places;
    typename B::template buffer<std::size_t> groups;
    std::size_t dropped;  // groups that lose their last candidate
  };

  void validate() const {
    within.validate();
    auto const refuse = [](std::string_view what) {
      throw error{errc::bad_argument, detail::sentence(name, ": ", what)};
    };
    if (within.rule.k.has_value()) refuse(".k counts entries of a group; write a .density instead");
    if (within.rule.at_most.has_value()) refuse(".at_most has no meaning here; leave it out");
  }

  /// The scope's pieces, each group with one candidate more than its share; capacity k.
  [[nodiscard]] partition pieces(layout const& shapes) const {
    std::vector<piece> shared;
    auto const share = [&](piece p, std::size_t size) {
      if (p.size == 0) return;
      p.count = p.capacity = std::min(size, floor_count(size) + 1);
      shared.push_back(p);
    };
    for (piece const& p : partition{within.pieces(shapes)}.pieces) {
      grid const g = grid_of(p);
      if (is_whole(p)) {
        share(p, p.size);
      } else if (g.height == 1 && g.width == p.size) {  // rows; a shorter last one has a share of its own
        std::size_t const rest = p.size % g.run;
        if (rest != p.size) share({p.begin, p.size - rest, 0, 0, {1, p.size - rest, g.run}}, g.run);
        share({p.begin + p.size - rest, rest, 0, 0}, rest);
      } else if (g.width % g.run == 0) {
        share(p, g.height * g.run);
      } else {
        throw error{
            errc::bad_argument,
            detail::sentence(name, ": tiles of a piece differ in size; write .fit = chunk_fit::largest_divisor")};
      }
    }
    return {std::move(shared), selected_count(within.rule.density, {}, shapes.size(), name)};
  }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t /*step*/,
              state<B, R> const& before, state<B, R>& after, entries_view<B, R, I> out) const {
    backend.select_top_k(from, pieces, out, after.next.view());
    std::size_t const groups = after.next.size();
    if (before.dropped == 0) return;
    entries_view<B, R, std::uint32_t> const last{after.places.view(), after.next.view(), after.groups.view()};
    backend.top_of(last, groups - before.dropped, after.best.view());
    backend.fill(after.drop.view(), R{1});
    backend.clear(after.best.view(), after.drop.view());
    backend.drop_last(out, pieces, after.next.view(), after.drop.view(), out);
  }

  void describe(description& out) const {
    out.open(name);
    out("within", within);
    out.close();
  }

 private:
  /// floor(density * size): `density_count` without its lower bound of one.
  [[nodiscard]] std::size_t floor_count(std::size_t size) const {
    std::uint64_t const parts = density_parts(within.rule.density, name);
    std::size_t const k = density_count(parts, size);
    return k > 1 || parts * size >= density_unit ? k : 0;
  }
};

}  // namespace topsum

#endif
