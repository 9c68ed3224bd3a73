// SPDX-License-Identifier: BSL-1.0
// The laws of residual stores times every store.
#include <doctest/doctest.h>

#include <cstddef>
#include <topsum/testing/residual_laws.hpp>
#include <topsum/topsum.hpp>

#if __has_include("support/archetype_backend.hpp")
#include "support/archetype_backend.hpp"
#endif

namespace {

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

template <class T, class B>
void check_stores(B const& on) {
  for (std::size_t const n : {std::size_t{3}, std::size_t{31}, std::size_t{1009}, std::size_t{70001}}) {
    CAPTURE(n);
    for (bool const rollback : {false, true}) {
      auto const check = [&](auto const& store) {
        expect_none(topsum::laws::residual_store<T>(store, rollback, n, on));
      };
      for (double const factor : {1.0, 0.5, 0.0}) {
        if (n > 2000 && factor != 0.5) continue;
        check(topsum::error_feedback{.decay = factor, .rollback = rollback});
        check(topsum::decoupled_momentum{.beta = factor, .rollback = rollback});
      }
      for (double const factor : {0.9, 0.5, 0.0}) {
        if (n > 2000 && factor != 0.9) continue;
        check(topsum::momentum_correction{.momentum = factor, .rollback = rollback});
        check(topsum::momentum_correction{.momentum = factor, .nesterov = true, .rollback = rollback});
        check(topsum::momentum_correction{.momentum = factor, .masking = false, .clip = 2.5, .rollback = rollback});
      }
    }
    expect_none(topsum::laws::residual_store<T>(topsum::no_residual{}, false, n, on));
  }
}

}  // namespace

TEST_CASE("every residual store keeps the laws for float") { check_stores<float>(topsum::host{}); }
TEST_CASE("every residual store keeps the laws for double") { check_stores<double>(topsum::host{}); }
TEST_CASE("every residual store keeps the laws for half") { check_stores<topsum::half>(topsum::host{}); }
TEST_CASE("every residual store keeps the laws for bfloat16") { check_stores<topsum::bfloat16>(topsum::host{}); }
TEST_CASE("every residual store keeps the laws without vector instructions") {
  check_stores<float>(topsum::host{topsum::instruction_set::portable});
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("every residual store keeps the laws in a memory space of its own") {
  check_stores<float>(test::archetype_backend{});
}
#endif
