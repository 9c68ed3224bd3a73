// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <topsum/error.hpp>

TEST_CASE("every error code has words of its own") {
  std::set<std::string> words;
  for (unsigned code = 0; code <= static_cast<unsigned>(topsum::errc::stage_failed); ++code) {
    words.insert(std::string{to_string(static_cast<topsum::errc>(code))});
  }
  CHECK(words.size() == static_cast<unsigned>(topsum::errc::stage_failed) + 1);
  CHECK(words.count("unknown error code") == 0);
  CHECK(to_string(static_cast<topsum::errc>(4711)) == "unknown error code");
}

TEST_CASE("an error says what it is told, and which rank") {
  topsum::error const e{topsum::errc::mismatch, "n differs", 3};
  CHECK(std::string{e.what()} == "topsum: n differs");
  CHECK(e.code() == topsum::errc::mismatch);
  CHECK(e.rank() == 3);
  CHECK(topsum::error{topsum::errc::timeout, ""}.rank() == -1);
}
