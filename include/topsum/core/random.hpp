// SPDX-License-Identifier: BSL-1.0
/// \file
/// Random positions from a counter: the same for the same (seed, counter) on every rank and backend.
#ifndef TOPSUM_CORE_RANDOM_HPP
#define TOPSUM_CORE_RANDOM_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <topsum/core/density.hpp>

namespace topsum {

/// 64 random bits: a mix of the two numbers (splitmix64), without state. O(1), integers only.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) noexcept {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15ULL + (counter + 1) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// A number below `bound` > 0 by random bits; those of one are as likely as those of another to about 2^-32.
[[nodiscard]] constexpr std::uint64_t random_below(std::uint64_t bits, std::uint64_t bound) noexcept {
  return bound >> 32 == 0 ? (bits >> 32) * bound >> 32 : bits % bound;
}

/// `size` places cut in `parts` runs of nearly equal length, 0 < parts <= size, parts < 2^32. Run j begins at
/// floor((j size + offset) / parts); with an `offset` below `parts` that is drawn at random, every place is as likely to lie in a long
/// run as any other.
class strata {
 public:
  constexpr strata(std::size_t size, std::size_t parts, std::size_t offset = 0) noexcept
      : parts_{parts}, offset_{offset}, whole_{size / parts}, rest_{size % parts} {}

  [[nodiscard]] constexpr std::size_t begin(std::size_t j) const noexcept {
    return j * whole_ + (j * rest_ + offset_) / parts_;
  }
  /// A place in run j < parts, by random bits. Increases with j.
  [[nodiscard]] constexpr std::size_t draw(std::size_t j, std::uint64_t bits) const noexcept {
    std::size_t const first = begin(j);
    return first + static_cast<std::size_t>(random_below(bits, begin(j + 1) - first));
  }

 private:
  std::size_t parts_;
  std::size_t offset_;
  std::size_t whole_;
  std::size_t rest_;
};

/// Where a sample's elements lie in a group: one in each run.
struct sample_places {
  strata cut;
  std::uint64_t key;

  [[nodiscard]] constexpr std::size_t operator[](std::size_t j) const noexcept {
    return cut.draw(j, random_bits(key, j));
  }
};

/// How a group's k-th magnitude is estimated from a sample: `sample_kth` says what it means.
struct sampling {
  std::uint64_t parts;  ///< share of a group's elements to look at, per 10^9: see `density_parts`
  std::uint64_t seed;   ///< another one, another sample

  /// Elements to look at in a group of `size` that aims at `count` > 0: its share, but so many that 2 of the first `count` are
  /// expected among them.
  [[nodiscard]] constexpr std::size_t elements(std::size_t size, std::size_t count) const noexcept {
    std::size_t const expected = size / count + (size % count != 0 ? 1 : 0);
    return std::min(size, std::max(density_count(parts, size), 2 * expected));
  }
  /// Which of `elements` sampled magnitudes, counted from the largest, stands for the `count`-th of `size`: rounded up.
  [[nodiscard]] static constexpr std::size_t rank(std::size_t elements, std::size_t size, std::size_t count) noexcept {
    std::size_t const whole = elements * (count / size);
    std::size_t const rest = elements * (count % size);  // elements and count below 2^32
    return std::clamp<std::size_t>(whole + rest / size + (rest % size != 0 ? 1 : 0), 1, elements);
  }
  /// Where in group `group` (counted over all pieces) of `size` values its `elements` sampled ones lie.
  [[nodiscard]] constexpr sample_places places(std::size_t group, std::size_t size,
                                               std::size_t elements) const noexcept {
    return {strata{size, elements}, random_bits(seed, group)};
  }
};

}  // namespace topsum

#endif
