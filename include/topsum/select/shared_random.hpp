// SPDX-License-Identifier: BSL-1.0
/// \file
/// Rule: k positions drawn at random, the same on all ranks.
#ifndef TOPSUM_SELECT_SHARED_RANDOM_HPP
#define TOPSUM_SELECT_SHARED_RANDOM_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/density.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Rule: exactly k random positions of each group, whatever the values: the same on all ranks, others on every step.
///
/// A stratified draw: a group is cut in k runs of nearly equal length, and one position of each is drawn from (seed, step). Over the
/// steps every position is as likely as any other. Groups that share rows of a block share the rows that are drawn, so that indices
/// come out in order. k = clamp(floor(density * size), 1, size), or `.k`, never above `.at_most`. Zeros count.
/// Source: random-k (Stich et al., "Sparsified SGD with memory", NeurIPS'18), with a seed that all ranks share.
/// Cost: one pass, O(k) numbers drawn, no state. Deterministic; the count is known without asking, and the indices too.
/// Unbiased but blind: expect to need several times the density of `top_k`. Its merit is that all supports are the same.
struct shared_random {
  using stage_tag = rule_tag;
  static constexpr std::string_view name = "shared_random";
  static constexpr bool fixed_count = true;
  static constexpr bool selects_alike = true;

  double density = 0.01;                 ///< share of the values, in (0, 1]
  std::optional<std::size_t> k{};        ///< a count instead of a density
  std::uint64_t seed = 0;                ///< the same on all ranks; another one, other positions
  std::optional<std::size_t> at_most{};  ///< entries that may travel from a group; default k

  /// Nothing: positions follow from the seed and the step.
  template <class B, class R>
  struct state {
    state(B&, std::span<piece const>) {}
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
  void select(B& backend, Source const& from, std::span<piece const> pieces, std::uint64_t step, state<B, R> const&,
              state<B, R>&, entries_view<B, R, I> out) const {
    std::size_t used = 0;
    for (piece const& p : pieces) {
      std::size_t const here = sum_over_groups(p, p.capacity);
      backend.for_each(
          here,
          [draw = draws{p, random_bits(random_bits(seed, step), p.begin)}](std::size_t e, I& index) {
            index = static_cast<I>(draw(e));
          },
          out.indices.subspan(used, here));
      used += here;
    }
    backend.fill(out.count, used);
    backend.select_at(from, out);
  }

  void describe(description& out) const {
    out.open(name);
    out("density", density);
    out("k", k);
    out("seed", seed);
    out("at_most", at_most);
    out.close();
  }

 private:
  // The positions drawn from one piece, in order.
  class draws {
   public:
    draws(piece const& p, std::uint64_t key)
        : grid_{grid_of(p)},
          begin_{p.begin},
          groups_{p.size == 0 ? 0 : groups_of_block(grid_)},
          full_{std::min(p.capacity, grid_.height * grid_.run)},
          key_{key} {
      if (groups_ == 0) return;
      last_breadth_ = grid_.width - (groups_ - 1) * grid_.run;
      last_ = std::min(p.capacity, grid_.height * last_breadth_);
    }

    // Position of entry e.
    [[nodiscard]] std::size_t operator()(std::size_t e) const {
      std::size_t const of_block = (groups_ - 1) * full_ + last_;
      std::size_t const block = e / of_block;
      std::uint64_t const drawn = random_bits(key_, block);
      return begin_ + block * (grid_.height * grid_.width) + in_block(e % of_block, drawn, random_bits(drawn, 0));
    }

   private:
    // A block with few rows drawn has one of each stratum of rows, for all groups; else every row has its share of each group.
    [[nodiscard]] std::size_t in_block(std::size_t e, std::uint64_t key, std::uint64_t bits) const {
      if (full_ <= grid_.height) {
        std::size_t const row = strata{grid_.height, full_, random_below(bits, full_)}.draw(
            e / groups_, random_bits(key, 1 + e / groups_));
        std::size_t const g = e % groups_;
        return row * grid_.width + g * grid_.run + random_below(random_bits(~key, e), breadth(g));
      }
      // Row r has entries floor((r full + t) / height) and on of a full group, and likewise of the last one.
      std::size_t const t = random_below(bits, grid_.height);
      strata const full{full_, grid_.height, t};
      strata const last{last_, grid_.height, t};
      auto const before = [&](std::size_t row) { return (groups_ - 1) * full.begin(row) + last.begin(row); };
      std::size_t row = 0;
      for (std::size_t end = grid_.height; end - row > 1;) {
        std::size_t const middle = row + (end - row) / 2;
        (before(middle) <= e ? row : end) = middle;
      }
      std::size_t const rest = e - before(row);
      std::size_t const each = full.begin(row + 1) - full.begin(row);
      std::size_t const g = std::min(rest / each, groups_ - 1);
      std::size_t const share = g + 1 < groups_ ? each : last.begin(row + 1) - last.begin(row);
      strata const columns{breadth(g), share, random_below(random_bits(key, row * groups_ + g), share)};
      return row * grid_.width + g * grid_.run + columns.draw(rest - g * each, random_bits(~key, e));
    }
    [[nodiscard]] std::size_t breadth(std::size_t g) const { return g + 1 < groups_ ? grid_.run : last_breadth_; }

    grid grid_;
    std::size_t begin_;
    std::size_t groups_;            // in a block
    std::size_t full_;              // entries of a group of full breadth
    std::size_t last_ = 0;          // and of the last group
    std::size_t last_breadth_ = 0;  // columns of the last group
    std::uint64_t key_;
  };
};

}  // namespace topsum

#endif
