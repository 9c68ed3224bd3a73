// SPDX-License-Identifier: BSL-1.0
// Which groups the scopes make of a layout, against indices counted one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <topsum/topsum.hpp>
#include <vector>

namespace {

using groups = std::vector<std::vector<std::size_t>>;

groups groups_of(std::vector<topsum::piece> const& pieces) {
  groups all;
  for (topsum::piece const& p : pieces) {
    CHECK(is_well_formed(p));
    for (std::size_t g = 0; g < group_count(p); ++g) {
      topsum::group const one = group_at(p, g);
      all.emplace_back();
      for (std::size_t i = 0; i < one.size(); ++i) all.back().push_back(one.position(i));
    }
  }
  std::ranges::sort(all);
  return all;
}

// The indices of an element, outermost first.
std::vector<std::size_t> indices_of(std::size_t at, std::vector<std::size_t> const& extents) {
  std::vector<std::size_t> index(extents.size());
  for (std::size_t a = extents.size(); a-- > 0; at /= extents[a]) index[a] = at % extents[a];
  return index;
}

// Rows: elements that agree in all indices but that of axis `a`; or, for `only`, in that of axis a alone.
groups rows(std::vector<std::size_t> const& extents, std::size_t a, bool only) {
  std::size_t const size = std::accumulate(extents.begin(), extents.end(), std::size_t{1}, std::multiplies<>{});
  std::map<std::vector<std::size_t>, std::vector<std::size_t>> all;
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<std::size_t> index = indices_of(i, extents);
    std::size_t const mine = index[a];
    if (only) {
      index = {mine};
    } else {
      index[a] = 0;
    }
    all[index].push_back(i);
  }
  groups out;
  for (auto const& [key, row] : all) out.push_back(row);
  std::ranges::sort(out);
  return out;
}

topsum::top_k const one{.k = 1};

}  // namespace

TEST_CASE("all_dimension takes the rows of any tensor along any axis") {
  using topsum::axis;
  for (std::vector<std::size_t> const& extents :
       {std::vector<std::size_t>{4, 7}, {7, 4}, {5, 6, 3}, {3, 8, 3, 5}, {8, 3, 2, 4, 3}}) {
    topsum::layout const shapes{{"t", topsum::extents(extents)}};
    CHECK(groups_of(topsum::all_dimension{one}.pieces(shapes)) == rows(extents, 1, false));
    CHECK(groups_of(topsum::all_dimension{one, {.along = axis::first}}.pieces(shapes)) == rows(extents, 0, false));
    CHECK(groups_of(topsum::all_dimension{one, {.along = axis::out_channel}}.pieces(shapes)) == rows(extents, 0, true));
    auto const most = static_cast<std::size_t>(std::ranges::max_element(extents) - extents.begin());
    CHECK(groups_of(topsum::all_dimension{one, {.along = axis::longest}}.pieces(shapes)) == rows(extents, most, false));
  }
  topsum::layout const tie{{"t", {6, 6, 3}}};
  CHECK(groups_of(topsum::all_dimension{one, {.along = axis::longest}}.pieces(tie)) == rows({6, 6, 3}, 1, false));
}

TEST_CASE("all_dimension goes dense where a tensor has no rows, or rows would not be smaller") {
  topsum::layout const shapes{{"bias", {9}},     {"scalar", {}},     {"column", {5, 1}}, {"none", {0, 4}},
                              {"pairs", {3, 2}}, {"threes", {4, 3}}, {"tens", {2, 10}}};
  auto const pieces = topsum::all_dimension{topsum::top_k{.density = 0.01}}.pieces(shapes);
  CHECK(pieces.size() == 7);
  for (std::size_t t : {0U, 1U, 2U, 3U, 4U}) {
    CHECK(is_whole(pieces[t]));
    CHECK(pieces[t].count == pieces[t].size);
  }
  CHECK(total_capacity(std::span{pieces}.subspan(5, 1)) == 4);
  CHECK(total_capacity(std::span{pieces}.subspan(6, 1)) == 2);
}

TEST_CASE("the k of a row is exact in integers") {
  topsum::layout const shapes{{"t", {3, 100}}};
  CHECK(topsum::all_dimension{topsum::top_k{.density = 0.29}}.pieces(shapes)[0].count == 29);
}

TEST_CASE("tiles and runs cover every tensor once, the last ones smaller or all of a dividing size") {
  using topsum::chunk_fit;
  topsum::layout const shapes{{"a", {100, 130}}, {"b", {7, 5, 3}}, {"c", {97}},
                              {"none", {0, 2}},  {"d", {}},        {"e", {1, 4}}};
  for (chunk_fit fit : {chunk_fit::pad_last, chunk_fit::largest_divisor}) {
    for (std::size_t h : {std::size_t{1}, std::size_t{4}, std::size_t{64}}) {
      topsum::chunked const policy{one, topsum::tiles{.height = h, .width = 16, .fit = fit}};
      std::vector<int> seen(shapes.size());
      for (auto const& chunk : groups_of(policy.pieces(shapes))) {
        CHECK(chunk.size() <= h * 16);
        for (std::size_t i : chunk) ++seen.at(i);
      }
      CHECK(std::ranges::all_of(seen, [](int n) { return n == 1; }));
    }
  }
  topsum::layout const matrix{{"m", {100, 130}}};
  auto const divided = topsum::chunked{one}.pieces(matrix);  // tiles of 50 x 26
  CHECK(divided.size() == 1);
  CHECK(divided[0].grid == topsum::grid{50, 130, 26});
  auto const padded = topsum::chunked{one, topsum::tiles{.fit = chunk_fit::pad_last}}.pieces(matrix);
  CHECK(padded.size() == 2);
  CHECK(total_groups(padded) == 6);
  CHECK(groups_of(padded)[0].size() == 64 * 64);
  auto const runs = topsum::chunked{one, topsum::runs{.length = 4096}}.pieces(matrix);
  CHECK(total_groups(runs) == 4);
  CHECK(groups_of(runs).back().size() == 100 * 130 - 3 * 4096);
  CHECK(groups_of(topsum::chunked{one, topsum::runs{.length = 10, .fit = chunk_fit::largest_divisor}}.pieces(97))
            .size() == 97);
}

TEST_CASE("a chunk of no extent is refused with the parameter to write") {
  CHECK_THROWS_WITH_AS((topsum::chunked{one, topsum::tiles{.height = 0}}.validate()),
                       "topsum: tiles: .height and .width are at least 1", topsum::error);
  CHECK_THROWS_WITH_AS((topsum::chunked{one, topsum::runs{.length = 0}}.validate()),
                       "topsum: runs: .length is at least 1", topsum::error);
}
