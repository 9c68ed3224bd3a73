// SPDX-License-Identifier: BSL-1.0
// Sparse reduce-scatter and allgather by themselves, against sums taken one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/ranks.hpp"

namespace {

using comm_t = topsum::local::communicator;
using lists_t = topsum::sparse_collectives<float, comm_t>;

struct list {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

// Some of n entries, other ones on each rank; whole numbers, so that sums are exact in any order.
list some_of(std::size_t n, std::size_t k, int rank, std::uint64_t turn) {
  list chosen;
  std::size_t const every = k == 0 ? n + 1 : std::max<std::size_t>(1, n / k);
  auto const r = static_cast<std::size_t>(rank);
  for (std::size_t i = (r + turn) % every; i < n && chosen.indices.size() < k; i += every) {
    chosen.indices.push_back(static_cast<std::uint32_t>(i));
    chosen.values.push_back(static_cast<float>((i * 7 + r * 3 + turn) % 19) - 9);
  }
  return chosen;
}

template <class Made>
list fetched(Made const& made) {
  return {{made.indices.begin(), made.indices.end()}, {made.values.begin(), made.values.end()}};
}

}  // namespace

TEST_CASE("a sparse reduce-scatter sums every region's entries on its owner, an allgather hands them to all") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::size_t const n : {0U, 1U, 7U, 97U, 1009U}) {
      for (std::size_t const k : {std::size_t{0}, std::size_t{1}, n / 5, n}) {
        if (k > n) continue;
        topsum::local::run(ranks, [&](comm_t& comm) {
          lists_t lists{comm, {.n = n, .k = k}};
          for (std::uint64_t turn = 0; turn < 3; ++turn) {
            std::map<std::uint32_t, float> sums;
            for (int r = 0; r < ranks; ++r) {
              list const theirs = some_of(n, k, r, turn);
              for (std::size_t i = 0; i < theirs.indices.size(); ++i) sums[theirs.indices[i]] += theirs.values[i];
            }
            list const mine = some_of(n, k, comm.rank(), turn);
            auto const scattered = lists.reduce_scatter(mine.indices, mine.values);
            list want;
            list all;
            for (auto const& [i, value] : sums) {
              all.indices.push_back(i);
              all.values.push_back(value);
              if (i < lists.begin() || i >= lists.end()) continue;
              want.indices.push_back(i);
              want.values.push_back(value);
            }
            list const region = fetched(scattered);
            CHECK(region.indices == want.indices);
            CHECK(region.values == want.values);
            // In place, and from a copy.
            list const gathered = fetched(turn == 1 ? lists.all_gather(region.indices, region.values)
                                                    : lists.all_gather(scattered.indices, scattered.values));
            CHECK(gathered.indices == all.indices);
            CHECK(gathered.values == all.values);
          }
        });
      }
    }
  }
}

TEST_CASE("regions are equal parts, in order") {
  auto const regions = topsum::local::run(5, [](comm_t& comm) {
    lists_t const lists{comm, {.n = 13, .k = 2}};
    return std::vector<std::size_t>{lists.begin(), lists.end()};
  });
  CHECK(regions == std::vector<std::vector<std::size_t>>{{0, 3}, {3, 6}, {6, 9}, {9, 11}, {11, 13}});
}

TEST_CASE("a list that cannot be is an error on every rank, and the next call goes on") {
  list const wrong[] = {
      {{3, 2}, {1, 1}},                    // does not increase
      {{3, 3}, {1, 1}},                    // likewise
      {{2, 50}, {1, 1}},                   // beyond n
      {{1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}},  // longer than k
      {{1, 2}, {1}},                       // as many indices as values
  };
  for (list const& bad : wrong) {
    auto const ends = test::endings(3, [&](comm_t& comm) {
      lists_t lists{comm, {.n = 50, .k = 4}};
      list const good = some_of(50, 4, comm.rank(), 0);
      list const& mine = comm.rank() == 1 ? bad : good;
      bool refused = false;
      try {
        static_cast<void>(lists.reduce_scatter(mine.indices, mine.values));
      } catch (topsum::error const& e) {
        refused = e.code() == topsum::errc::bad_argument && e.rank() == 1;
      }
      CHECK(refused);
      static_cast<void>(lists.reduce_scatter(good.indices, good.values));
    });
    for (auto const& end : ends) CHECK(end.code == topsum::errc::none);
  }
}

TEST_CASE("an allgather refuses entries of another's region; constructors refuse shapes that differ") {
  auto const outside = test::endings(2, [](comm_t& comm) {
    lists_t lists{comm, {.n = 10, .k = 2}};
    std::vector<std::uint32_t> const indices{1};  // rank 0's
    std::vector<float> const values{1};
    static_cast<void>(lists.all_gather(indices, values));
  });
  for (auto const& end : outside) CHECK(end.code == topsum::errc::bad_argument);
  auto const differ = test::endings(2, [](comm_t& comm) {
    lists_t const lists{comm, {.n = 10, .k = static_cast<std::size_t>(1 + comm.rank())}};
  });
  for (auto const& end : differ) CHECK(end.code == topsum::errc::mismatch);
  auto const too_long = test::endings(2, [](comm_t& comm) { lists_t const lists{comm, {.n = 3, .k = 4}}; });
  for (auto const& end : too_long) CHECK(end.code == topsum::errc::bad_argument);
}

TEST_CASE("lists travel through codecs") {
  topsum::local::run(4, [](comm_t& comm) {
    using coded_t = topsum::coded<topsum::elias_fano, topsum::as<topsum::half>>;
    topsum::sparse_collectives<float, comm_t, std::uint32_t, coded_t> lists{comm, {.n = 1000, .k = 50}};
    list const mine = some_of(1000, 50, comm.rank(), 1);
    auto const region = lists.reduce_scatter(mine.indices, mine.values);  // whole numbers: nothing is lost
    auto const all = lists.all_gather(region.indices, region.values);
    float sum = 0;
    for (float const value : all.values) sum += value;
    float want = 0;
    for (int r = 0; r < 4; ++r) {
      for (float const value : some_of(1000, 50, r, 1).values) want += value;
    }
    CHECK(sum == want);
  });
}
