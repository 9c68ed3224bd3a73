// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <topsum/transport/local.hpp>
#include <vector>

#include "support/queued_backend.hpp"
#include "support/transport_checks.hpp"

namespace {

template <class Backend>
void every_verb(int ranks, std::uint64_t seed, std::size_t most = 5003) {
  auto const failed = topsum::local::run(ranks,
                                         [&](topsum::local::communicator& t) {
                                           Backend backend;
                                           return test::check_transport(t, backend, most);
                                         },
                                         {.time_limit = std::chrono::seconds{10}, .shuffle_seed = seed});
  for (auto const& texts : failed) {
    for (std::string const& text : texts) FAIL_CHECK(text);
  }
}

TEST_CASE("every verb gives what it says, for 1 to 8 ranks and any order of arrival") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    every_verb<test::queued_host>(ranks, 0);
    every_verb<test::queued_host>(ranks, static_cast<std::uint64_t>(ranks) * 100);
  }
}

TEST_CASE("every verb works where all-to-all needs several groups of messages") {
  for (int const ranks : {9, 11, 18}) every_verb<test::queued_host>(ranks, 3, 101);
}

TEST_CASE("every verb works in a memory space of its own") {
  every_verb<test::queued_box>(3, 0);
  every_verb<test::queued_box>(4, 7);
}

TEST_CASE("a transport copies by memory_access::copy where there is one") {
  auto const copies = topsum::local::run(2, [](topsum::local::communicator& t) {
    test::queued_box backend;
    test::boxed_copies = 0;
    std::vector<std::byte> all(10);
    std::vector<std::byte> const mine(5);
    topsum::collective::all_gather(t, backend, backend.view(mine), backend.view(all));
    return test::boxed_copies;
  });
  CHECK(copies[0] + copies[1] == 2);
}

TEST_CASE("sizes that cannot be right are refused") {
  topsum::local::run(1, [](topsum::local::communicator& t) {
    test::queued_host backend;
    std::vector<std::byte> const mine(5);
    std::vector<std::byte> all(6);
    std::vector<std::size_t> const sizes{5};
    std::vector<std::size_t> const other{6};
    std::vector<float> values(3);
    std::vector<float> scratch(2);
    namespace c = topsum::collective;
    CHECK_THROWS_AS(c::all_gather(t, backend, mine, all), topsum::error);
    CHECK_THROWS_AS(c::all_gather_v(t, backend, mine, all, sizes), topsum::error);
    CHECK_THROWS_AS(c::all_gather_v(t, backend, mine, all, {}), topsum::error);
    CHECK_THROWS_AS(c::all_to_all(t, backend, mine, all), topsum::error);
    CHECK_THROWS_AS(c::all_to_all_v(t, backend, mine, sizes, all, other), topsum::error);
    CHECK_THROWS_AS(c::all_reduce(t, backend, std::span{values}, topsum::combine::sum, std::span{scratch}),
                    topsum::error);
    CHECK_THROWS_AS(c::broadcast(t, backend, all, 1), topsum::error);
  });
}

}  // namespace
