// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <climits>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <topsum/transport/counting.hpp>
#include <topsum/transport/mpi.hpp>
#include <utility>
#include <vector>

#include "support/queued_backend.hpp"
#include "support/transport_checks.hpp"

namespace {

using test::bytes;
using topsum::errc;
using topsum::mpi::communicator;
using send = topsum::transfer<topsum::host_span<std::byte const>>;
using receive = topsum::transfer<topsum::host_span<std::byte>>;

static_assert(topsum::reaches<communicator, test::queued_host>);
static_assert(!topsum::reaches<communicator, test::queued_box>);
static_assert(topsum::can_all_gather<communicator> && topsum::can_all_gather_v<communicator>);
static_assert(topsum::can_all_to_all<communicator> && topsum::can_broadcast<communicator>);
static_assert(topsum::can_all_reduce<communicator, topsum::host_span<std::uint64_t>>);
static_assert(!topsum::can_all_reduce<communicator, topsum::host_span<short>>);
static_assert(topsum::can_all_gather_v<topsum::counting<communicator>>);
static_assert(!topsum::can_all_to_all_v<topsum::counting<communicator>>);

communicator world(int largest_message = INT_MAX) {
  return communicator::duplicate(MPI_COMM_WORLD, {.largest_message = largest_message});
}

communicator::ticket start(communicator& t, std::vector<send> const& sends, std::vector<receive> const& receives) {
  return t.start(std::span<send const>{sends}, std::span<receive const>{receives});
}

template <class F>
errc code_of(F f) {
  try {
    f();
  } catch (topsum::error const& e) {
    return e.code();
  }
  return errc::none;
}

// Messages only: what is left of MPI is built.
struct messages_only {
  using ticket = communicator::ticket;
  communicator inner;
  [[nodiscard]] int rank() const { return inner.rank(); }
  [[nodiscard]] int size() const { return inner.size(); }
  ticket start(std::span<send const> sends, std::span<receive const> receives) { return inner.start(sends, receives); }
  void finish(ticket& group) { inner.finish(group); }
};

// Spinning processes on fewer cores take milliseconds a message: only the first limit tries the larger sizes.
TEST_CASE("every verb gives what it says, native and built, in one piece and in pieces") {
  test::queued_host backend;
  for (auto const& [largest, most] : {std::pair{INT_MAX, 5003U}, std::pair{64, 101U}}) {
    CAPTURE(largest);
    communicator native = world(largest);
    for (std::string const& text : test::check_transport(native, backend, most)) FAIL_CHECK(text);
    messages_only built{native};
    for (std::string const& text : test::check_transport(built, backend, most)) FAIL_CHECK(text);
  }
}

TEST_CASE("pieces of one byte") {
  communicator t = world(1);
  test::queued_host backend;
  bytes const mine = test::marked(t.rank(), 0, 7);
  bytes all(7 * static_cast<std::size_t>(t.size()));
  bytes want;
  for (int r = 0; r < t.size(); ++r) test::append(want, test::marked(r, 0, 7));
  topsum::collective::all_gather(t, backend, mine, all);
  CHECK(all == want);
  std::vector<double> values(3, 1.0);
  t.all_reduce(std::span{values}, topsum::combine::sum);
  CHECK(values == std::vector<double>(3, t.size()));
}

TEST_CASE("counting counts native verbs as it counts built ones") {
  topsum::counting native{world()};
  topsum::counting built{messages_only{world()}};
  test::queued_host backend;
  auto const P = static_cast<std::size_t>(native.size());
  bytes const mine(9);
  bytes all(9 * P);
  std::vector<float> values(11);
  std::vector<float> scratch(11);
  auto const both = [&](auto& t) {
    topsum::collective::all_gather(t, backend, mine, all);
    topsum::collective::all_reduce(t, backend, std::span{values}, topsum::combine::sum, std::span{scratch});
  };
  both(native);
  both(built);
  CHECK(native.tally().messages == built.tally().messages);
  CHECK(native.tally().bytes == built.tally().bytes);
  CHECK(native.tally().bytes_to == built.tally().bytes_to);
}

TEST_CASE("a message of another size than expected is an error, and the communicator goes on") {
  for (int const largest : {INT_MAX, 64}) {
    communicator t = world(largest);
    if (t.size() < 2) continue;
    for (std::size_t const sent : {9U, 11U}) {
      bytes from(sent, std::byte{1});
      bytes to(10);
      if (t.rank() == 0) {
        auto group = start(t, {{1, from}}, {});
        t.finish(group);
      } else if (t.rank() == 1) {
        auto group = start(t, {}, {{0, to}});
        CHECK(code_of([&] { t.finish(group); }) == errc::corrupt_message);
      }
    }
    test::queued_host backend;
    test::failures out{{}, t.rank(), 101};
    test::check_gathers(t, backend, out);
    for (std::string const& text : out.texts) FAIL_CHECK(text);
  }
}

TEST_CASE("a ticket that is dropped writes nothing later") {
  communicator t = world();
  {
    bytes gone(100);
    auto group = start(t, {}, {{(t.rank() + 1) % t.size(), gone}});
  }
  MPI_Barrier(t.native());
  bytes const from(50, std::byte{3});
  bytes to(50);
  auto group = start(t, {{(t.rank() + 1) % t.size(), from}}, {{(t.rank() + t.size() - 1) % t.size(), to}});
  t.finish(group);
  t.finish(group);
  CHECK(to == from);
}

TEST_CASE("bad communicators, peers and options are refused in a sentence") {
  CHECK_THROWS_WITH_AS((void)communicator::duplicate(MPI_COMM_NULL),
                       "topsum: mpi: communicator::duplicate: MPI_COMM_NULL is no communicator", topsum::error);
  CHECK(code_of([] { (void)communicator::adopt(MPI_COMM_NULL); }) == errc::bad_argument);
  CHECK(code_of([] { (void)world(0); }) == errc::bad_argument);
  communicator t = world();
  bytes data(4);
  CHECK(code_of([&] { (void)start(t, {{t.size(), data}}, {}); }) == errc::bad_argument);
  CHECK(code_of([&] { (void)start(t, {}, {{-1, data}}); }) == errc::bad_argument);
  CHECK(code_of([&] { t.broadcast(data, t.size()); }) == errc::bad_argument);
}

TEST_CASE("an intercommunicator is refused") {
  communicator t = world();
  if (t.size() < 2) return;
  int const side = t.rank() % 2;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_split(t.native(), side, 0, &half);
  MPI_Intercomm_create(half, 0, t.native(), 1 - side, 3, &inter);
  CHECK(code_of([&] { (void)communicator::duplicate(inter); }) == errc::bad_argument);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

TEST_CASE("an adopted communicator is used as it is and gets its error handler back") {
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(mine, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  {
    communicator const t = communicator::adopt(mine);
    communicator copy = t;
    CHECK(copy.native() == mine);
    MPI_Comm_get_errhandler(mine, &handler);
    CHECK(handler == MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    std::vector<float> ones(2, 1.0F);
    copy.all_reduce(std::span{ones}, topsum::combine::sum);
    CHECK(ones[1] == static_cast<float>(t.size()));
  }
  MPI_Comm_get_errhandler(mine, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&mine);
}

TEST_CASE("what MPI reports is an exception with its words, whatever the handler of MPI_COMM_WORLD") {
  communicator t = world();
  if (t.size() < 2) return;
  bytes const from(10);
  bytes to(5);
  for (bool const early : {false, true}) {
    if (t.rank() == 0) {
      auto group = start(t, {{1, from}}, {});
      t.finish(group);
      if (early) MPI_Barrier(t.native());
    } else if (t.rank() == 1) {
      if (early) MPI_Barrier(t.native());
      auto group = start(t, {}, {{0, to}});
      std::string text;
      try {
        t.finish(group);
      } catch (topsum::error const& e) {
        text = e.what();
      }
      CHECK(text.find("mpi: MPI_Wait: ") != std::string::npos);
    } else if (early) {
      MPI_Barrier(t.native());
    }
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
  }
}

TEST_CASE("a second session does not end the first one's MPI") {
  { topsum::mpi::session const inner; }
  int finalized = 1;
  MPI_Finalized(&finalized);
  CHECK(finalized == 0);
}

std::optional<communicator> kept;

TEST_CASE("a communicator is kept beyond the end of MPI") {
  kept = world();
  CHECK(kept->size() >= 1);
}

TEST_SUITE("after MPI") {
  TEST_CASE("use after MPI_Finalize is an error, not the end of the job") {
    CHECK(code_of([] { (void)world(); }) == errc::bad_argument);
    CHECK(code_of([] { topsum::mpi::session const again; }) == errc::bad_argument);
    if (kept) {
      bytes data(4);
      std::vector<float> values(1);
      CHECK(code_of([&] { (void)start(*kept, {{0, data}}, {}); }) == errc::bad_argument);
      CHECK(code_of([&] { kept->all_reduce(std::span{values}, topsum::combine::sum); }) == errc::bad_argument);
      CHECK(code_of([&] { kept->all_gather(data, data); }) == errc::bad_argument);
      kept.reset();
    }
  }
}

TEST_SUITE("before MPI") {
  TEST_CASE("use before MPI_Init is an error, not the end of the job") {
    CHECK_THROWS_WITH_AS((void)communicator::duplicate(MPI_COMM_NULL),
                         "topsum: mpi: communicator::duplicate before MPI_Init; make a topsum::mpi::session first",
                         topsum::error);
    CHECK(code_of([] { (void)world(); }) == errc::bad_argument);
  }
}

}  // namespace
