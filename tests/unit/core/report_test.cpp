// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <topsum/core/report.hpp>

TEST_CASE("a report prints itself in one line") {
  topsum::report r;
  r.step = 12;
  r.n = 1000;
  r.selected = 10;
  r.sent = 9;
  r.result = 8;
  r.messages = 6;
  r.bytes = 600;
  r.dense_bytes = 6000;
  r.select_seconds = 0.001;
  std::ostringstream out;
  out << r;
  CHECK(out.str() == r.to_string());
  CHECK(out.str() ==
        "step 12: selected 10 of 1000 (1 %), sent 9, result 8; 600 bytes in 6 messages (10 % of dense); "
        "select 1 ms, exchange 0 ms, apply 0 ms");
}

TEST_CASE("shares of nothing are 0, not NaN") {
  topsum::report const r;
  CHECK(r.effective_density() == 0);
  CHECK(r.share_of_dense() == 0);
  CHECK(r.to_string().find("nan") == std::string::npos);
}

TEST_CASE("the largest numbers fit the line") {
  topsum::report r;
  r.step = r.messages = r.bytes = r.dense_bytes = std::numeric_limits<std::uint64_t>::max();
  r.n = r.selected = r.sent = r.result = std::numeric_limits<std::size_t>::max();
  r.select_seconds = r.exchange_seconds = r.apply_seconds = 1.23456e300;
  CHECK(r.to_string().substr(r.to_string().size() - 3) == " ms");
}
