// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of transports.
#ifndef TOPSUM_TESTING_TRANSPORT_LAWS_HPP
#define TOPSUM_TESTING_TRANSPORT_LAWS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/testing/inputs.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum::laws {

/// Laws of a transport over host memory; collective: every rank calls it, each gets its own failures. Every verb, native or
/// built, does what its concept says at sizes 0, 1 and uneven; messages between two ranks arrive in order.
template <transport C>
  requires can_send_recv<C>
[[nodiscard]] failures transport(C comm) {
  verdict v;
  host backend;
  auto const P = static_cast<std::size_t>(comm.size());
  auto const me = static_cast<std::size_t>(comm.rank());
  auto const byte_of = [](std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<std::byte>(from * 31 + to * 7 + i * 13);
  };

  for (std::size_t const size :
       {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{1024}, std::size_t{100003}}) {
    v.about(std::to_string(P) + " ranks, " + std::to_string(size) + " bytes");
    {
      std::vector<std::byte> mine(size);
      std::vector<std::byte> all(size * P);
      for (std::size_t i = 0; i < size; ++i) mine[i] = byte_of(me, 0, i);
      collective::all_gather(comm, backend, std::span<std::byte const>{mine}, std::span{all});
      bool right = true;
      for (std::size_t r = 0; r < P; ++r) {
        for (std::size_t i = 0; i < size; ++i) right = right && all[r * size + i] == byte_of(r, 0, i);
      }
      v.expect(right, "all_gather brings every rank's block in rank order");
    }
    {
      std::vector<std::size_t> sizes(P);
      std::size_t total = 0;
      for (std::size_t r = 0; r < P; ++r) total += sizes[r] = r % 3 == 1 ? 0 : size + r;
      std::vector<std::byte> mine(sizes[me]);
      std::vector<std::byte> all(total);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = byte_of(me, 1, i);
      collective::all_gather_v(comm, backend, std::span<std::byte const>{mine}, std::span{all},
                               std::span<std::size_t const>{sizes});
      bool right = true;
      std::size_t at = 0;
      for (std::size_t r = 0; r < P; ++r) {
        for (std::size_t i = 0; i < sizes[r]; ++i) right = right && all[at++] == byte_of(r, 1, i);
      }
      v.expect(right, "all_gather_v brings blocks of uneven sizes in rank order");
    }
    {
      std::vector<std::byte> from(size * P);
      std::vector<std::byte> to(size * P);
      for (std::size_t r = 0; r < P; ++r) {
        for (std::size_t i = 0; i < size; ++i) from[r * size + i] = byte_of(me, r, i);
      }
      collective::all_to_all(comm, backend, std::span<std::byte const>{from}, std::span{to});
      bool right = true;
      for (std::size_t r = 0; r < P; ++r) {
        for (std::size_t i = 0; i < size; ++i) right = right && to[r * size + i] == byte_of(r, me, i);
      }
      v.expect(right, "all_to_all brings block i from rank i");
    }
    {
      std::vector<std::size_t> out(P);
      std::vector<std::size_t> in(P);
      auto const between = [&](std::size_t a, std::size_t b) { return (a + 2 * b) % 3 == 0 ? 0 : size + a + 2 * b; };
      std::size_t out_total = 0;
      std::size_t in_total = 0;
      for (std::size_t r = 0; r < P; ++r) {
        out_total += out[r] = between(me, r);
        in_total += in[r] = between(r, me);
      }
      std::vector<std::byte> from(out_total);
      std::vector<std::byte> to(in_total);
      for (std::size_t r = 0, at = 0; r < P; ++r) {
        for (std::size_t i = 0; i < out[r]; ++i) from[at++] = byte_of(me, r, i);
      }
      collective::all_to_all_v(comm, backend, std::span<std::byte const>{from}, std::span<std::size_t const>{out},
                               std::span{to}, std::span<std::size_t const>{in});
      bool right = true;
      for (std::size_t r = 0, at = 0; r < P; ++r) {
        for (std::size_t i = 0; i < in[r]; ++i) right = right && to[at++] == byte_of(r, me, i);
      }
      v.expect(right, "all_to_all_v brings blocks of uneven sizes");
    }
    {
      std::vector<double> values(size);
      std::vector<double> scratch(size / P + 1);
      for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<double>(i % 100 * (me + 1));
      collective::all_reduce(comm, backend, std::span{values}, combine::sum, std::span{scratch});
      bool right = true;
      for (std::size_t i = 0; i < size; ++i)
        right = right && values[i] == static_cast<double>(i % 100 * (P * (P + 1) / 2));
      v.expect(right, "all_reduce sums over ranks");
      for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<double>((i + me) % P);
      collective::all_reduce(comm, backend, std::span{values}, combine::maximum, std::span{scratch});
      right = true;
      for (double x : values) right = right && x == static_cast<double>(P - 1);
      v.expect(right, "all_reduce finds the maximum over ranks");
    }
    for (std::size_t root = 0; root < P; ++root) {
      std::vector<std::byte> bytes(size, std::byte{255});
      for (std::size_t i = 0; i < size && me == root; ++i) bytes[i] = byte_of(root, 2, i);
      collective::broadcast(comm, backend, std::span{bytes}, static_cast<int>(root));
      bool right = true;
      for (std::size_t i = 0; i < size; ++i) right = right && bytes[i] == byte_of(root, 2, i);
      v.expect(right, "broadcast brings the root's bytes");
    }
    if (P > 1) {
      // Two groups in flight between neighbours: the first message started is the first received.
      std::vector<std::byte> one(size + 1, std::byte{1});
      std::vector<std::byte> two(size + 1, std::byte{2});
      std::vector<std::byte> first(size + 1);
      std::vector<std::byte> second(size + 1);
      int const next = static_cast<int>((me + 1) % P);
      int const before = static_cast<int>((me + P - 1) % P);
      std::array<transfer<std::span<std::byte const>>, 1> const s1{{{next, one}}};
      std::array<transfer<std::span<std::byte const>>, 1> const s2{{{next, two}}};
      std::array<transfer<std::span<std::byte>>, 1> const r1{{{before, first}}};
      std::array<transfer<std::span<std::byte>>, 1> const r2{{{before, second}}};
      auto a = comm.start(std::span<transfer<std::span<std::byte const>> const>{s1},
                          std::span<transfer<std::span<std::byte>> const>{r1});
      auto b = comm.start(std::span<transfer<std::span<std::byte const>> const>{s2},
                          std::span<transfer<std::span<std::byte>> const>{r2});
      comm.finish(b);
      comm.finish(a);
      v.expect(first == one && second == two, "messages between two ranks arrive in order");
    }
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
