// SPDX-License-Identifier: BSL-1.0
// Replays what the fuzzer kept, and random bytes beside it.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "support/codec_fuzzing.hpp"

TEST_CASE("no decoder leaves its memory or takes an index out of range, whatever the bytes") {
  std::size_t files = 0;
  for (auto const& file : std::filesystem::directory_iterator{TOPSUM_TEST_DATA "/codec_corpus"}) {
    std::ifstream in{file.path(), std::ios::binary};
    std::vector<char> const bytes{std::istreambuf_iterator<char>{in}, {}};
    test::decode_anything(reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size());
    ++files;
  }
  CHECK(files > 10);
  std::vector<std::uint8_t> bytes(200);
  for (std::uint64_t round = 0; round < 20000; ++round) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::uint64_t const random = topsum::random_bits(round, i);
      bytes[i] = static_cast<std::uint8_t>(round % 3 == 0 ? random : random % 5 == 0 ? random >> 8 : 0);
    }
    test::decode_anything(bytes.data(), 8 + round % 190);
  }
}
