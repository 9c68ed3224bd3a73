// SPDX-License-Identifier: BSL-1.0
// The NCCL transport over a stand-in: verbs, faults, communicators of a user.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <topsum/testing/transport_laws.hpp>
#include <vector>

#include "support/device_archetype.hpp"
#include "support/ranks.hpp"
#include "support/transport_checks.hpp"

namespace {

using topsum::device_span;
using topsum::transfer;
using bytes = std::vector<std::byte>;

// The least backend of collectives that has device memory, and moves values in and out.
class device_bytes {
 public:
  template <class T>
  using span = device_span<T>;
  explicit device_bytes(cudaStream_t stream) : queue_{std::make_shared<test::stream_queue>(stream)}, on_{queue_} {}

  template <class T>
  test::device_buffer<T> place(std::vector<T> const& values) {
    auto there = on_.allocate<T>(values.size());
    on_.write(std::span<T const>{values}, there.view());
    return there;
  }
  template <class T>
  std::vector<T> fetch(test::device_buffer<T>& from) {
    std::vector<T> values(from.size());
    on_.read(from.view(), std::span<T>{values});
    return values;
  }
  test::device_archetype& verbs() { return on_; }

 private:
  std::shared_ptr<test::stream_queue> queue_;
  test::device_archetype on_;
};

// What a rank has to say about its verbs on device memory.
std::vector<std::string> device_failures(topsum::local::communicator& comm) {
  test::nccl_seat const seat{comm};
  topsum::nccl::communicator t = seat.transport();
  device_bytes d{seat.stream()};
  auto& b = d.verbs();
  using backend = test::device_archetype;
  test::failures out;
  out.rank = comm.rank();
  int const P = comm.size();
  int const me = comm.rank();
  for (std::size_t const n : {0U, 1U, 13U, 1024U}) {
    std::string const at = " of " + std::to_string(n);
    bytes want;
    for (int r = 0; r < P; ++r) test::append(want, test::marked(r, 0, n));
    auto mine = d.place(test::marked(me, 0, n));
    auto all = d.place(bytes(want.size()));
    topsum::collective::all_gather<topsum::nccl::communicator, backend>(t, b, mine.view(), all.view());
    out.expect(d.fetch(all) == want, "all_gather" + at);

    std::vector<std::size_t> sizes;
    want.clear();
    for (int r = 0; r < P; ++r) {
      sizes.push_back(test::uneven(r, 1, n));
      test::append(want, test::marked(r, 1, sizes.back()));
    }
    mine = d.place(test::marked(me, 1, sizes[static_cast<std::size_t>(me)]));
    all = d.place(bytes(want.size()));
    topsum::collective::all_gather_v<topsum::nccl::communicator, backend>(t, b, mine.view(), all.view(),
                                                                          std::span<std::size_t const>{sizes});
    out.expect(d.fetch(all) == want, "all_gather_v" + at);

    for (bool const even : {true, false}) {
      std::vector<std::size_t> to_sizes;
      std::vector<std::size_t> from_sizes;
      bytes from;
      want.clear();
      for (int r = 0; r < P; ++r) {
        from_sizes.push_back(even ? n : test::uneven(me, r, n));
        to_sizes.push_back(even ? n : test::uneven(r, me, n));
        test::append(from, test::marked(me, r, from_sizes.back()));
        test::append(want, test::marked(r, me, to_sizes.back()));
      }
      mine = d.place(from);
      all = d.place(bytes(want.size()));
      if (even) {
        topsum::collective::all_to_all<topsum::nccl::communicator, backend>(t, b, mine.view(), all.view());
      } else {
        topsum::collective::all_to_all_v<topsum::nccl::communicator, backend>(
            t, b, mine.view(), std::span<std::size_t const>{from_sizes}, all.view(),
            std::span<std::size_t const>{to_sizes});
      }
      out.expect(d.fetch(all) == want, "all_to_all" + at);
    }

    auto const reduced = [&]<class V>(V, topsum::combine how) {
      std::vector<V> values(n);
      std::vector<V> expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = topsum::from_wide<V>(static_cast<topsum::wide_t<V>>(i % 8 + static_cast<std::size_t>(me)));
        int const sum = P * (P - 1) / 2 + P * static_cast<int>(i % 8);
        int const largest = P - 1 + static_cast<int>(i % 8);
        expected[i] = topsum::from_wide<V>(static_cast<topsum::wide_t<V>>(how == topsum::combine::sum ? sum : largest));
      }
      auto there = d.place(values);
      t.all_reduce(there.view(), how);
      out.expect(test::bytes_of(d.fetch(there)) == test::bytes_of(expected), "all_reduce" + at);
    };
    for (auto const how : {topsum::combine::sum, topsum::combine::maximum}) {
      reduced(float{}, how);
      reduced(double{}, how);
      reduced(topsum::half{}, how);
      reduced(topsum::bfloat16{}, how);
    }

    for (int root = 0; root < P; ++root) {
      auto there = d.place(test::marked(me, 3, n));
      topsum::collective::broadcast<topsum::nccl::communicator, backend>(t, b, there.view(), root);
      out.expect(d.fetch(there) == test::marked(root, 3, n), "broadcast" + at);
    }
  }
  return out.texts;
}

// A message to the next rank and one from the one before, of sizes that may disagree.
void pass_on(topsum::nccl::communicator& t, device_bytes& d, std::size_t out, std::size_t in) {
  auto const from = d.place(bytes(out));
  auto to = d.place(bytes(in));
  transfer<device_span<std::byte const>> const send{(t.rank() + 1) % t.size(), from.view()};
  transfer<device_span<std::byte>> const receive{(t.rank() + t.size() - 1) % t.size(), to.view()};
  auto posted = t.start(std::span{&send, 1}, std::span{&receive, 1});
  t.finish(posted);
  d.verbs().wait();
}

topsum::nccl::options impatient() { return {.time_limit = std::chrono::milliseconds{300}}; }

}  // namespace

TEST_CASE("the laws of transports hold for host messages, which are staged") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto const failed = topsum::local::run(ranks, [](topsum::local::communicator& comm) {
      return topsum::laws::transport(test::nccl_seat{comm}.transport());
    });
    for (auto const& of_rank : failed) CHECK(of_rank.empty());
  }
}

TEST_CASE("every verb gives what it says on device memory, for 1 to 8 ranks") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (auto const& of_rank : topsum::local::run(ranks, device_failures)) {
      for (auto const& sentence : of_rank) FAIL_CHECK(sentence);
    }
  }
}

TEST_CASE("what NCCL finds wrong is thrown by a later call, and the communicator is of no use any more") {
  auto const ended = test::endings(2, [](topsum::local::communicator& comm) {
    test::nccl_seat const seat{comm, impatient()};
    auto t = seat.transport();
    device_bytes d{seat.stream()};
    pass_on(t, d, 8, 8);
    pass_on(t, d, comm.rank() == 1 ? 16 : 8, 8);
    pass_on(t, d, 8, 8);
    pass_on(t, d, 8, 8);
  });
  for (int r : {0, 1}) {
    CHECK(ended[static_cast<std::size_t>(r)].code == topsum::errc::transport);
    CHECK(ended[static_cast<std::size_t>(r)].says("ranks disagree"));
    CHECK(ended[static_cast<std::size_t>(r)].rank == r);
  }
}

TEST_CASE("a peer that does not come is a timeout, and then every call says why") {
  auto const ended = test::endings(3, [](topsum::local::communicator& comm) {
    test::nccl_seat const seat{comm, impatient()};
    auto t = seat.transport();
    if (comm.rank() == 2) return;
    std::byte out{1};
    std::byte in{2};
    transfer<std::span<std::byte const>> const send{2, {&out, 1}};
    transfer<std::span<std::byte>> const receive{2, {&in, 1}};
    auto posted = t.start(std::span{&send, 1}, std::span{&receive, 1});
    auto const first = test::ending_of([&] { t.finish(posted); });
    CHECK(first.code == topsum::errc::timeout);
    CHECK(first.says("a peer has not called"));
    CHECK(in == std::byte{2});
    CHECK(t.native() == nullptr);  // aborted, since ours
    t.broadcast(device_span<std::byte>{}, 0);
  });
  for (std::size_t r : {0U, 1U}) {
    CHECK(ended[r].code == topsum::errc::transport);
    CHECK(ended[r].says("of no use any more"));
  }
  CHECK(ended[2].code == topsum::errc::none);
}

TEST_CASE("a rank that never joins is a timeout of create") {
  auto const ended = test::endings(2, [](topsum::local::communicator& comm) {
    test::cuda_stream const stream;
    if (comm.rank() == 1) {  // takes the id, and goes
      std::vector<std::byte> told(sizeof(ncclUniqueId) + 4);
      topsum::collective::host_memory memory;
      topsum::collective::broadcast(comm, memory, std::span{told}, 0);
      return;
    }
    static_cast<void>(topsum::nccl::communicator::create(comm, stream.native(), impatient()));
  });
  CHECK(ended[0].code == topsum::errc::timeout);
  CHECK(ended[0].says("ncclCommInitRankConfig"));
}

TEST_CASE("a user's communicator is adopted, blocking or not, and stays the user's") {
  for (int const blocking : {0, 1}) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    auto const ended = test::endings(4, [&](topsum::local::communicator& comm) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking;
      ncclComm_t mine = nullptr;
      ncclCommInitRankConfig(&mine, comm.size(), id, comm.rank(), &config);
      test::cuda_stream const stream;
      device_bytes d{stream.native()};
      {
        auto t = topsum::nccl::communicator::adopt(mine, stream.native());
        CHECK(t.native() == mine);
        CHECK(t.rank() == comm.rank());
        CHECK(t.size() == comm.size());
        pass_on(t, d, 8, 8);
      }
      auto again = topsum::nccl::communicator::adopt(mine, stream.native());
      pass_on(again, d, 100, 100);
      ncclCommDestroy(mine);
    });
    for (auto const& one : ended) CHECK(one.what == "");
  }
}

TEST_CASE("what cannot be right is refused in a sentence") {
  auto const null = test::ending_of([] { static_cast<void>(topsum::nccl::communicator::adopt(nullptr, nullptr)); });
  CHECK(null.code == topsum::errc::bad_argument);
  CHECK(null.says("no communicator"));
  auto const ended = test::endings(2, [](topsum::local::communicator& comm) {
    test::nccl_seat const seat{comm};
    auto t = seat.transport();
    CHECK(test::ending_of([&] { t.broadcast(device_span<std::byte>{}, 2); }).code == topsum::errc::bad_argument);
    std::byte out{1};
    transfer<std::span<std::byte const>> const send{-1, {&out, 1}};
    auto const wrong = test::ending_of([&] {
      static_cast<void>(t.start(std::span{&send, 1}, std::span<transfer<std::span<std::byte>> const>{}));
    });
    CHECK(wrong.says("names a peer -1 among 2 ranks"));
    // Host memory given out as a device's: NCCL says no.
    t.broadcast(device_span<std::byte>{&out, 1}, 0);
  });
  CHECK(ended[0].code == topsum::errc::transport);
  CHECK(ended[0].says("ncclBroadcast: invalid argument"));
  auto const limit = test::endings(1, [](topsum::local::communicator& comm) {
    test::nccl_seat const seat{comm, {.time_limit = std::chrono::milliseconds{0}}};
  });
  CHECK(limit[0].code == topsum::errc::bad_argument);
}

TEST_CASE("a ticket that is dropped lets its messages travel") {
  auto const ended = test::endings(2, [](topsum::local::communicator& comm) {
    test::nccl_seat const seat{comm};
    auto t = seat.transport();
    int const peer = 1 - comm.rank();
    for (std::byte const round : {std::byte{1}, std::byte{2}, std::byte{3}}) {
      std::byte in{};
      transfer<std::span<std::byte const>> const send{peer, {&round, 1}};
      transfer<std::span<std::byte>> const receive{peer, {&in, 1}};
      auto posted = t.start(std::span{&send, 1}, std::span{&receive, 1});
      if (round == std::byte{2}) continue;
      t.finish(posted);
      CHECK(in == round);
    }
  });
  for (auto const& one : ended) CHECK(one.what == "");
}
