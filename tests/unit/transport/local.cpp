// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <topsum/transport/local.hpp>
#include <type_traits>
#include <vector>

namespace {

using namespace std::chrono_literals;
using topsum::errc;
using topsum::local::communicator;
using bytes = std::vector<std::byte>;
using send = topsum::transfer<topsum::host_span<std::byte const>>;
using receive = topsum::transfer<topsum::host_span<std::byte>>;

communicator::ticket start(communicator& t, std::vector<send> const& sends, std::vector<receive> const& receives) {
  return t.start(std::span<send const>{sends}, std::span<receive const>{receives});
}

void move(communicator& t, std::vector<send> const& sends, std::vector<receive> const& receives) {
  auto ticket = start(t, sends, receives);
  t.finish(ticket);
}

struct fault {
  errc code = errc::none;
  int rank = -1;
  std::string text;
};

fault fault_of(std::function<void()> const& f) {
  try {
    f();
  } catch (topsum::error const& e) {
    return {e.code(), e.rank(), e.what()};
  } catch (std::exception const& e) {
    return {errc::none, -1, e.what()};
  }
  return {};
}

bool says(fault const& one, std::string const& words) { return one.text.find(words) != std::string::npos; }

double seconds(std::function<void()> const& f) {
  auto const begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
}

static_assert(!std::is_copy_constructible_v<communicator::ticket>);
static_assert(std::is_nothrow_move_assignable_v<communicator::ticket>);

TEST_CASE("run returns what ranks return, by rank, and takes any kind of function") {
  // NOLINTNEXTLINE(performance-unnecessary-value-param): users may write it so
  CHECK(topsum::local::run(5, [](communicator t) { return t.rank() * 10 + t.size(); }) ==
        std::vector{5, 15, 25, 35, 45});
  CHECK(topsum::local::run(2, [](communicator& t) { return t.rank() == 1; }) == std::vector{false, true});
  static_assert(std::is_void_v<decltype(topsum::local::run(1, [](auto&&) {}))>);
  fault const none = fault_of([] { topsum::local::run(0, [](communicator&) {}); });
  CHECK(none.code == errc::bad_argument);
  CHECK(says(none, "0 ranks"));
}

TEST_CASE("a rank may send to itself, and an empty ticket is done") {
  topsum::local::run(1, [](communicator& t) {
    bytes const from(3, std::byte{7});
    bytes to(3);
    move(t, {{0, from}}, {{0, to}});
    CHECK(to == from);
    communicator::ticket none;
    t.finish(none);
    auto ticket = start(t, {}, {});
    t.finish(ticket);
    t.finish(ticket);
  });
}

TEST_CASE("a peer that is no rank is refused") {
  topsum::local::run(1, [](communicator& t) {
    bytes data(3);
    fault const one = fault_of([&] { move(t, {{1, data}}, {}); });
    CHECK(one.code == errc::bad_argument);
    CHECK(fault_of([&] { move(t, {}, {{-1, data}}); }).code == errc::bad_argument);
  });
}

TEST_CASE("messages of a pair keep their order, those of many ranks all arrive") {
  constexpr int ranks = 16;
  for (std::uint64_t const seed : {0U, 5U, 6U}) {
    auto const right = topsum::local::run(ranks,
                                          [](communicator& t) {
                                            bool good = true;
                                            for (std::size_t round = 1; round < 20; ++round) {
                                              std::vector<bytes> from;
                                              std::vector<bytes> to;
                                              std::vector<send> sends;
                                              std::vector<receive> receives;
                                              for (int peer = 0; peer < ranks; ++peer) {
                                                for (int i = 0; i < 2; ++i) {
                                                  from.emplace_back(round * round,
                                                                    static_cast<std::byte>(t.rank() * 2 + i));
                                                  to.emplace_back(round * round);
                                                }
                                              }
                                              for (std::size_t i = 0; i < from.size(); ++i) {
                                                sends.push_back({static_cast<int>(i / 2), from[i]});
                                                receives.push_back({static_cast<int>(i / 2), to[i]});
                                              }
                                              move(t, sends, receives);
                                              for (std::size_t i = 0; i < to.size(); ++i) {
                                                good = good && to[i] == bytes(round * round, static_cast<std::byte>(i));
                                              }
                                            }
                                            return good;
                                          },
                                          {.shuffle_seed = seed});
    for (bool const one : right) CHECK(one);
  }
}

TEST_CASE("with a seed, the order of arrival varies") {
  auto const first = [](std::uint64_t seed) {
    std::vector<int> order;
    std::mutex guard;
    topsum::local::run(6,
                       [&](communicator& t) {
                         bytes data(1);
                         if (t.rank() == 0) {
                           std::vector<bytes> to(5, bytes(1));
                           std::vector<receive> receives;
                           for (int peer = 1; peer < 6; ++peer)
                             receives.push_back({peer, to[static_cast<std::size_t>(peer - 1)]});
                           move(t, {}, receives);
                         } else {
                           move(t, {{0, data}}, {});
                           std::lock_guard const lock{guard};
                           order.push_back(t.rank());
                         }
                       },
                       {.shuffle_seed = seed});
    return order;
  };
  auto const one = first(1);
  bool varies = false;
  for (std::uint64_t seed = 2; seed < 200 && !varies; ++seed) varies = first(seed) != one;
  CHECK(varies);
}

TEST_CASE("a rank that throws is what run reports, and the others hear of it at once") {
  double const took = seconds([] {
    std::vector<fault> seen(4);
    fault const out = fault_of([&] {
      topsum::local::run(4, [&](communicator& t) {
        if (t.rank() == 2) throw std::runtime_error{"no paper"};
        bytes data(10);
        seen[static_cast<std::size_t>(t.rank())] = fault_of([&] { move(t, {{2, data}}, {{2, data}}); });
        move(t, {}, {{(t.rank() + 1) % 4, data}});
      });
    });
    CHECK(out.text == "no paper");
    for (std::size_t const rank : {0U, 1U, 3U}) {
      CHECK(seen[rank].code == errc::transport);
      CHECK(seen[rank].rank == 2);
      CHECK(says(seen[rank], "rank 2 left (it threw: no paper)"));
    }
  });
  CHECK(took < 5.0);
}

TEST_CASE("a rank that leaves is an error for those that wait for it, before and after") {
  fault const out = fault_of([] {
    topsum::local::run(3, [](communicator& t) {
      bytes data(10);
      if (t.rank() == 2) return;
      if (t.rank() == 1) std::this_thread::sleep_for(20ms);
      move(t, {}, {{2, data}});
    });
  });
  CHECK(out.code == errc::transport);
  CHECK(out.rank == 2);
  CHECK(says(out, "rank 2 left (its function ended)"));
}

TEST_CASE("what was sent before a rank left still arrives") {
  auto const got = topsum::local::run(2, [](communicator& t) {
    bytes data(10, t.rank() == 0 ? std::byte{9} : std::byte{0});
    if (t.rank() == 0) move(t, {{1, data}}, {});
    if (t.rank() == 1) {
      std::this_thread::sleep_for(10ms);
      move(t, {}, {{0, data}});
    }
    return data == bytes(10, std::byte{9});
  });
  CHECK(got[1]);
}

TEST_CASE("the cause is reported, not its consequences on lower ranks") {
  fault const out = fault_of([] {
    topsum::local::run(5, [](communicator& t) {
      bytes data(10);
      if (t.rank() == 4) throw topsum::error{errc::mismatch, "four", 4};
      move(t, {}, {{t.rank() + 1, data}});
    });
  });
  CHECK(out.code == errc::mismatch);
}

TEST_CASE("a rank that does not answer is named after the time limit") {
  double const took = seconds([] {
    fault seen;
    std::latch done{1};
    topsum::local::run(3,
                       [&](communicator& t) {
                         bytes data(10);
                         if (t.rank() == 0) {
                           seen = fault_of([&] { move(t, {{1, data}}, {{2, data}}); });
                           done.count_down();
                         }
                         if (t.rank() == 1) move(t, {}, {{0, data}});
                         if (t.rank() == 2) done.wait();
                       },
                       {.time_limit = 300ms});
    CHECK(seen.code == errc::timeout);
    CHECK(seen.rank == 2);
    CHECK(says(seen, "rank 2 did not answer rank 0 within 300 ms"));
  });
  CHECK(took < 5.0);
}

TEST_CASE("after a time limit memory is left alone, and late peers get an error instead of other data") {
  std::latch given_up{1};
  topsum::local::run(2,
                     [&](communicator& t) {
                       if (t.rank() == 0) {
                         auto ticket = [&] {
                           bytes gone(1000);
                           auto posted = start(t, {{1, gone}}, {{1, gone}});
                           CHECK(fault_of([&] { t.finish(posted); }).code == errc::timeout);
                           return posted;
                         }();
                         given_up.count_down();
                         bytes data(1000);
                         CHECK(fault_of([&] { move(t, {{1, data}}, {}); }).code == errc::transport);
                       } else {
                         given_up.wait();
                         bytes data(1000);
                         fault const late = fault_of([&] { move(t, {}, {{0, data}}); });
                         CHECK(late.code == errc::transport);
                         CHECK(says(late, "given up"));
                         CHECK(fault_of([&] { move(t, {{0, data}}, {}); }).code == errc::transport);
                       }
                     },
                     {.time_limit = 20ms});
}

TEST_CASE("a ticket that is dropped takes its messages back") {
  topsum::local::run(2, [](communicator& t) {
    bytes flag(1);
    if (t.rank() == 0) {
      {
        bytes gone(100);
        auto ticket = start(t, {{1, gone}}, {});
        ticket = start(t, {}, {});
      }
      move(t, {}, {{1, flag}});
    } else {
      move(t, {{0, flag}}, {});
      bytes data(100);
      CHECK(fault_of([&] { move(t, {}, {{0, data}}); }).code == errc::transport);
    }
  });
}

TEST_CASE("ranks that disagree on a size both get an error, and no data") {
  for (std::uint64_t const seed : {0U, 1U, 2U, 3U}) {
    topsum::local::run(2,
                       [](communicator& t) {
                         bytes const from(10, std::byte{1});
                         bytes to(9);
                         fault const one = fault_of([&] {
                           if (t.rank() == 0) move(t, {{1, from}}, {});
                           if (t.rank() == 1) move(t, {}, {{0, to}});
                         });
                         CHECK(one.code == errc::corrupt_message);
                         CHECK(says(one, t.rank() == 0 ? "rank 0 sent 10 bytes, rank 1 expected 9"
                                                       : "rank 1 expected 9 bytes, rank 0 sent 10"));
                         CHECK(to == bytes(9));
                         // Both know, so the next message is good again.
                         bytes more(5);
                         if (t.rank() == 0) move(t, {{1, bytes(5, std::byte{2})}}, {});
                         if (t.rank() == 1) move(t, {}, {{0, more}});
                         CHECK((t.rank() == 0 || more == bytes(5, std::byte{2})));
                       },
                       {.shuffle_seed = seed});
  }
}

TEST_CASE("groups on their way while ranks throw leave nothing behind") {
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    fault const out = fault_of([&] {
      topsum::local::run(6,
                         [&](communicator& t) {
                           for (std::uint64_t round = 0;; ++round) {
                             std::vector<bytes> from(6, bytes(8000));
                             std::vector<bytes> to(6, bytes(8000));
                             std::vector<send> sends;
                             std::vector<receive> receives;
                             for (int peer = 0; peer < 6; ++peer) {
                               sends.push_back({peer, from[static_cast<std::size_t>(peer)]});
                               receives.push_back({peer, to[static_cast<std::size_t>(peer)]});
                             }
                             auto ticket = start(t, sends, receives);
                             if (round == seed % 5 && t.rank() == static_cast<int>(seed % 6))
                               throw std::runtime_error{"now"};
                             t.finish(ticket);
                           }
                         },
                         {.shuffle_seed = seed});
    });
    CHECK(out.text == "now");
  }
}

}  // namespace
