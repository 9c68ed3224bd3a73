// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstdint>
#include <topsum/transport/counting.hpp>
#include <topsum/transport/local.hpp>
#include <vector>

#include "support/queued_backend.hpp"
#include "support/transport_checks.hpp"

namespace {

// Has every collective, and moves nothing: what counts is the convention.
struct pretending {
  int at;
  int ranks;
  [[nodiscard]] int rank() const { return at; }
  [[nodiscard]] int size() const { return ranks; }
  using in = topsum::host_span<std::byte const>;
  using out = topsum::host_span<std::byte>;
  using sizes = topsum::host_span<std::size_t const>;
  void all_gather(in, out) {}
  void all_gather_v(in, out, sizes) {}
  void all_to_all(in, out) {}
  void all_to_all_v(in, sizes, out, sizes) {}
  void all_reduce(topsum::host_span<float>, topsum::combine) {}
  void broadcast(out, int) {}
};
static_assert(topsum::transport<topsum::counting<pretending>>);
static_assert(!topsum::can_send_recv<topsum::counting<pretending>>);
static_assert(topsum::can_all_gather<topsum::counting<pretending>>);
static_assert(topsum::can_all_gather_v<topsum::counting<pretending>>);
static_assert(topsum::can_all_to_all<topsum::counting<pretending>>);
static_assert(topsum::can_all_to_all_v<topsum::counting<pretending>>);
static_assert(topsum::can_all_reduce<topsum::counting<pretending>>);
static_assert(!topsum::can_all_reduce<topsum::counting<pretending>, topsum::host_span<double>>);
static_assert(topsum::can_broadcast<topsum::counting<pretending>>);

using counted = topsum::counting<topsum::local::communicator>;
static_assert(topsum::can_send_recv<topsum::local::communicator>);
static_assert(topsum::can_send_recv<counted>);
static_assert(topsum::reaches<counted, test::queued_box>);
static_assert(!topsum::can_all_gather<counted>);
static_assert(!topsum::can_all_to_all_v<counted>);
static_assert(!topsum::can_all_reduce<counted>);
static_assert(!topsum::can_broadcast<counted>);

bool same(topsum::sent_tally const& a, topsum::sent_tally const& b) {
  return a.messages == b.messages && a.bytes == b.bytes && a.messages_to == b.messages_to && a.bytes_to == b.bytes_to;
}

struct outcome {
  bool gather, gather_v, to_all, to_all_v, reduce;
  std::uint64_t broadcast_built, broadcast_native;
};

TEST_CASE("built collectives and native ones count the same") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::size_t const n : {0U, 1U, 3U, 7U, 64U, 1001U}) {
      CAPTURE(ranks);
      CAPTURE(n);
      auto const all = topsum::local::run(ranks, [&](topsum::local::communicator& inner) {
        counted built{inner};
        topsum::counting native{pretending{inner.rank(), ranks}};
        test::queued_host backend;
        auto const P = static_cast<std::size_t>(ranks);
        outcome out{};
        namespace c = topsum::collective;
        auto const both = [&](auto verb) {
          built.reset();
          native.reset();
          verb(built);
          verb(native);
          return same(built.tally(), native.tally());
        };
        test::bytes mine(n);
        test::bytes whole(n * P);
        test::bytes other(n * P);
        out.gather = both([&](auto& t) { c::all_gather(t, backend, mine, whole); });
        out.to_all = both([&](auto& t) { c::all_to_all(t, backend, other, whole); });
        std::vector<std::size_t> sizes;
        std::vector<std::size_t> to_sizes;
        std::vector<std::size_t> from_sizes;
        std::size_t total[3] = {};
        for (int r = 0; r < ranks; ++r) {
          sizes.push_back(test::uneven(r, 1, n));
          to_sizes.push_back(test::uneven(inner.rank(), r, n));
          from_sizes.push_back(test::uneven(r, inner.rank(), n));
          total[0] += sizes.back();
          total[1] += to_sizes.back();
          total[2] += from_sizes.back();
        }
        test::bytes own(sizes[static_cast<std::size_t>(inner.rank())]);
        test::bytes gathered(total[0]);
        test::bytes out_bytes(total[1]);
        test::bytes in_bytes(total[2]);
        out.gather_v = both([&](auto& t) { c::all_gather_v(t, backend, own, gathered, sizes); });
        out.to_all_v = both([&](auto& t) { c::all_to_all_v(t, backend, out_bytes, to_sizes, in_bytes, from_sizes); });
        std::vector<float> values(n);
        std::vector<float> scratch(n / P + 1);
        out.reduce = both(
            [&](auto& t) { c::all_reduce(t, backend, std::span{values}, topsum::combine::sum, std::span{scratch}); });
        both([&](auto& t) { c::broadcast(t, backend, mine, ranks / 2); });
        out.broadcast_built = built.tally().bytes;
        out.broadcast_native = native.tally().bytes;
        return out;
      });
      std::uint64_t broadcast_built = 0;
      std::uint64_t broadcast_native = 0;
      for (outcome const& one : all) {
        CHECK(one.gather);
        CHECK(one.gather_v);
        CHECK(one.to_all);
        CHECK(one.to_all_v);
        CHECK(one.reduce);
        broadcast_built += one.broadcast_built;
        broadcast_native += one.broadcast_native;
      }
      CHECK(broadcast_built == n * static_cast<std::size_t>(ranks - 1));
      CHECK(broadcast_native == broadcast_built);
    }
  }
}

TEST_CASE("counts are those of the formulas") {
  auto const tallies = topsum::local::run(4, [](topsum::local::communicator& inner) {
    counted t{inner};
    counted const copy = t;
    test::queued_host backend;
    test::bytes mine(10);
    test::bytes all(40);
    topsum::collective::all_gather(t, backend, mine, all);
    std::vector<double> values(8);
    std::vector<double> scratch(2);
    topsum::collective::all_reduce(t, backend, std::span{values}, topsum::combine::sum, std::span{scratch});
    return copy.tally();
  });
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(tallies[r].messages == 3 + 6);
    CHECK(tallies[r].bytes == 30 + 2 * 8 * 3 / 4 * sizeof(double));
    CHECK(tallies[r].messages_to[(r + 1) % 4] == 9);
    CHECK(tallies[r].bytes_to[(r + 1) % 4] == tallies[r].bytes);
  }
}

}  // namespace
