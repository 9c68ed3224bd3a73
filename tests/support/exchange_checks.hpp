// SPDX-License-Identifier: BSL-1.0
// The laws of exchanges over 1 to 8 ranks as threads, for the law tests of each exchange.
#ifndef TOPSUM_TESTS_SUPPORT_EXCHANGE_CHECKS_HPP
#define TOPSUM_TESTS_SUPPORT_EXCHANGE_CHECKS_HPP

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <topsum/testing/exchange_laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/even_values.hpp"

#if __has_include("support/archetype_backend.hpp")
#include "support/archetype_backend.hpp"
#endif

namespace test {

inline void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

#if defined(__has_feature)
#define TOPSUM_TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define TOPSUM_TEST_HAS_FEATURE(x) 0
#endif

// Sanitizers make threads slow: with one, three numbers of ranks stand for all.
inline bool skips_ranks(int ranks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || TOPSUM_TEST_HAS_FEATURE(address_sanitizer) || \
    TOPSUM_TEST_HAS_FEATURE(thread_sanitizer)
  return ranks != 1 && ranks != 3 && ranks != 8;
#else
  static_cast<void>(ranks);
  return false;
#endif
}

// Every number of ranks with one n and one k, which go round as `turn` does.
template <class T, class I = std::uint32_t, class X, class... B>
void check_exchange(X const& exchange, std::uint64_t steps, std::size_t turn, B const&... on) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto const before = static_cast<std::size_t>(ranks) - 1;
    std::vector<std::size_t> const sizes{0, 1, 2, before, 97, 1009};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::size_t const n = sizes[i];
      std::vector<std::size_t> const counts{0, 1, before, n};
      for (std::size_t j = 0; j < counts.size(); ++j) {
        if (skips_ranks(ranks) || i != turn % sizes.size() || j != turn % counts.size()) continue;
        CAPTURE(counts[j]);
        expect_none(topsum::laws::exchange<T, I>(exchange, ranks, n, steps, on..., topsum::top_k{.k = counts[j]}));
      }
    }
    turn += 5;
  }
}

// Three ranks with every n and k.
template <class T, class X>
void check_corners(X const& exchange, std::uint64_t steps) {
  for (std::size_t const n : {0U, 1U, 97U}) {
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, n}) {
      CAPTURE(k);
      expect_none(topsum::laws::exchange<T>(exchange, 3, n, steps, topsum::top_k{.k = k}));
    }
  }
}

// A codec that loses: what it takes must stay in residuals.
template <class X>
void check_losses(X const& exchange) {
  topsum::coded const lossy{topsum::elias_fano{}, even_values{}};
  for (int const ranks : {1, 3, 8})
    expect_none(topsum::laws::exchange<float>(exchange, ranks, 97, 3, topsum::top_k{.k = 40}, lossy));
}

}  // namespace test

#endif
