// SPDX-License-Identifier: BSL-1.0
/// \file
/// What exchanges predict that a step of theirs costs, and how long that takes on a link.
#ifndef TOPSUM_EXCHANGE_COST_HPP
#define TOPSUM_EXCHANGE_COST_HPP

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <topsum/codec/raw.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// What the busiest rank does in a step's exchange, beside the 48 bytes to each peer that every exchange sends.
/// Where a cost depends on how selections overlap, they are taken for independent: two entries coincide by chance.
struct exchange_cost {
  double messages = 0;  ///< that it sends or awaits one after the other
  double bytes = 0;     ///< that it sends
  double entries = 0;   ///< that it decodes and merges
};

/// How fast ranks exchange: alpha-beta-gamma, in seconds.
struct exchange_rates {
  double alpha = 0;  ///< a message
  double beta = 0;   ///< a byte
  double gamma = 0;  ///< an entry, decoded and merged

  [[nodiscard]] constexpr double seconds(exchange_cost const& c) const noexcept {
    return alpha * c.messages + beta * c.bytes + gamma * c.entries;
  }
};

/// An exchange that says what it costs: for a codec, value R and index I, and a shape (its rank does not matter).
template <class X, class K = raw, class R = float, class I = std::uint32_t>
concept predictable_exchange = exchange<X> && requires(X const& x, K const& codec, exchange_shape const& s) {
  { x.template cost<R, I>(codec, s) } -> std::same_as<exchange_cost>;
};

namespace detail {

/// Entries in the union of `lists` independent selections of k among n, rounded up.
[[nodiscard]] inline std::size_t expected_union(std::size_t k, std::size_t n, int lists) {
  if (k >= n) return n;
  double const missed = std::pow(1 - static_cast<double>(k) / static_cast<double>(n), lists);
  return std::min(n, static_cast<std::size_t>(std::ceil(static_cast<double>(n) * (1 - missed))));
}

/// ceil(log2 P).
[[nodiscard]] inline int doublings(int ranks) noexcept {
  int rounds = 0;
  while ((std::int64_t{1} << rounds) < ranks) ++rounds;
  return rounds;
}

[[nodiscard]] inline std::size_t ceil_div(std::size_t a, int b) noexcept {
  auto const d = static_cast<std::size_t>(b);
  return (a + d - 1) / d;
}

}  // namespace detail

}  // namespace topsum

#endif
