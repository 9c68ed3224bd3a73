// SPDX-License-Identifier: BSL-1.0
// Pieces and their groups, against counting one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <topsum/core/piece.hpp>
#include <vector>

using topsum::grid;
using topsum::piece;

TEST_CASE("groups cut a piece without gap or overlap, in every shape") {
  grid const shapes[] = {{},        {1, 30, 30}, {1, 30, 7}, {30, 1, 1}, {5, 6, 1}, {5, 6, 6},
                         {5, 6, 4}, {3, 10, 3},  {1, 1, 1},  {2, 15, 4}, {1, 10, 5}};
  for (grid const& cut : shapes) {
    std::size_t const block = cut.height == 0 ? 30 : cut.height * cut.width;
    for (std::size_t blocks : {std::size_t{1}, std::size_t{3}}) {
      piece const p{7, cut.height == 0 ? 30 : blocks * block, 1, 1, cut};
      CHECK(is_well_formed(p));
      std::vector<int> seen(p.size);
      std::size_t first = 0;
      for (std::size_t g = 0; g < group_count(p); ++g) {
        topsum::group const one = group_at(p, g);
        CHECK(one.size() > 0);
        bool const later = g == 0 || one.first > first;
        CHECK(later);
        first = one.first;
        for (std::size_t i = 0; i < one.size(); ++i) {
          std::size_t const at = one.position(i);
          ++seen.at(at - p.begin);
          CHECK(group_of(p, at) == g);
          CHECK(place_in_group(p, at) == i);
          CHECK(((one.size() - 1) >> place_bits(p)) == std::size_t{0});
        }
      }
      CHECK(std::ranges::all_of(seen, [](int n) { return n == 1; }));
    }
  }
}

TEST_CASE("entries over groups add up, the last group's fewer included") {
  piece const rows{0, 10, 3, 3, {1, 10, 4}};  // 4, 4 and 2 values
  CHECK(group_count(rows) == 3);
  CHECK(sum_over_groups(rows, 3) == 8);
  CHECK(sum_over_groups(rows, 1) == 3);
  CHECK(sum_over_groups(rows, 100) == 10);
  piece const none{5, 0, 0, 0, {1, 0, 1}};
  CHECK(group_count(none) == 0);
  CHECK(sum_over_groups(none, 1) == 0);
  piece const all[] = {rows, none, {10, 4, 2, 2}};
  CHECK(topsum::total_groups(all) == 4);
  CHECK(topsum::total_capacity(all) == 10);
}

TEST_CASE("a piece that is not whole blocks, or asks for more than a group has, is not well formed") {
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 11, 1}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 11}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 1, {3, 3, 1}}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 3, 1, {2, 5, 1}}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 1, {2, 5, 6}}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 1, {2, 5, 0}}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 1, {~std::size_t{0}, 2, 1}}));
  CHECK_FALSE(topsum::is_well_formed(piece{0, 10, 1, 1, {0, 2, 1}}));
}
