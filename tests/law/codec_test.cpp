// SPDX-License-Identifier: BSL-1.0
// The laws of codecs times every codec, value and index type.
#include <doctest/doctest.h>

#include <cstdint>
#include <topsum/testing/codec_laws.hpp>
#include <topsum/topsum.hpp>

#if __has_include("support/archetype_backend.hpp")
#include "support/archetype_backend.hpp"
#endif

namespace {

void expect_none(topsum::laws::failures const& failed) {
  for (auto const& sentence : failed) FAIL_CHECK(sentence);
  CHECK(failed.empty());
}

template <class R, class I, class B>
void check_codecs(B const& on) {
  using topsum::coded;
  auto const check = [&](auto const& codec) { expect_none(topsum::laws::codec<R, I>(codec, on)); };
  check(topsum::raw{});
  check(coded{topsum::elias_fano{}, topsum::as_is{}});
  check(coded{topsum::packed{}, topsum::as_is{}});
  check(coded{topsum::bitmap{}, topsum::as_is{}});
  check(coded{topsum::elias_fano{}, topsum::as<topsum::half>{}});
  check(coded{topsum::packed{}, topsum::as<topsum::bfloat16>{}});
  check(coded{topsum::elias_fano{}, topsum::as<float>{}});
  check(coded{topsum::bitmap{}, topsum::int8{}});
  check(coded{topsum::elias_fano{}, topsum::sign{}});
  check(coded{topsum::packed{}, topsum::lookup<2>{}});
  check(coded{topsum::elias_fano{}, topsum::lookup<5>{}});
  check(coded{topsum::elias_fano{}, topsum::qsgd<4>{.seed = 3}});
  check(coded{topsum::elias_fano{}, topsum::qsgd<9>{}});
}

}  // namespace

TEST_CASE("every codec keeps the laws for float and 32-bit indices") {
  check_codecs<float, std::uint32_t>(topsum::host{});
}
TEST_CASE("every codec keeps the laws for double and 32-bit indices") {
  check_codecs<double, std::uint32_t>(topsum::host{});
}
TEST_CASE("every codec keeps the laws for float and 64-bit indices") {
  check_codecs<float, std::uint64_t>(topsum::host{});
}
TEST_CASE("every codec keeps the laws for double and 64-bit indices") {
  check_codecs<double, std::uint64_t>(topsum::host{});
}

TEST_CASE("the index width of the raw codec follows the index type, never the value type") {
  CHECK(topsum::raw{}.bytes<float, std::uint32_t>(10, 0, 100) == 80);
  CHECK(topsum::raw{}.bytes<double, std::uint32_t>(10, 0, 100) == 120);
  CHECK(topsum::raw{}.bytes<float, std::uint64_t>(10, 0, 100) == 120);
  CHECK(topsum::raw{}.bytes<double, std::uint64_t>(0, 0, 100) == 0);
}

#if __has_include("support/archetype_backend.hpp")
TEST_CASE("every codec keeps the laws in a memory space of its own") {
  check_codecs<float, std::uint32_t>(test::archetype_backend{});
  check_codecs<double, std::uint64_t>(test::archetype_backend{});
}
#endif
