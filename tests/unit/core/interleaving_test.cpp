// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <topsum/core/interleaving.hpp>
#include <vector>

TEST_CASE("an interleaving gives every position one owner and one place, in order") {
  for (std::size_t const n : {0U, 1U, 2U, 7U, 31U, 97U, 256U, 1009U}) {
    for (std::size_t const owners : {1U, 2U, 3U, 4U, 7U, 8U, 16U}) {
      for (std::size_t const block : {1U, 2U, 5U, 32U, 2000U}) {
        CAPTURE(n);
        CAPTURE(owners);
        CAPTURE(block);
        topsum::interleaving const where{n, owners, block};
        std::vector<std::size_t> next(owners);
        bool right = true;
        for (std::size_t i = 0; i < n; ++i) {
          std::size_t const b = i / block;
          std::size_t const owner = (b + b / owners) % owners;
          right = right && where.owner_of(i) == owner && where.place_of(i) == next[owner] &&
                  where.position_of(owner, next[owner]) == i;
          ++next[owner];
        }
        CHECK(right);
        std::size_t most = 0;
        for (std::size_t r = 0; r < owners; ++r) {
          CHECK(where.size_of(r) == next[r]);
          most = std::max(most, next[r]);
        }
        CHECK(where.largest() == most);
        CHECK(where.is_contiguous() == (owners == 1 || (n + block - 1) / block <= owners));
      }
    }
  }
}

TEST_CASE("an interleaving works for positions beyond 32 bits") {
  topsum::interleaving const where{(std::size_t{1} << 40) + 5, 7, 32};
  for (std::size_t i = where.n - 1000; i < where.n; ++i)
    CHECK(where.position_of(where.owner_of(i), where.place_of(i)) == i);
}

TEST_CASE("quotas are cut where an owner has fewer coordinates") {
  topsum::quotas const wanted{{10, 4, 4}, 3};  // owners have 4, 4, 2 and 0
  CHECK(wanted.of(0) == 3);
  CHECK(wanted.of(2) == 2);
  CHECK(wanted.of(3) == 0);
  CHECK(wanted.total() == 8);
}
