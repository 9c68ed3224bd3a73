// SPDX-License-Identifier: BSL-1.0
// What every collective must give, over any transport: run on every rank, returns what failed there.
#ifndef TOPSUM_TESTS_SUPPORT_TRANSPORT_CHECKS_HPP
#define TOPSUM_TESTS_SUPPORT_TRANSPORT_CHECKS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <topsum/transport/verbs.hpp>
#include <vector>

#include "queued_backend.hpp"

namespace test {

using bytes = std::vector<std::byte>;

// A byte that tells its sender, receiver and place.
inline std::byte mark(int from, int to, std::size_t place) {
  return static_cast<std::byte>(
      (static_cast<std::size_t>(from) * 67 + static_cast<std::size_t>(to) * 29 + place * 7 + 1) & 0xffU);
}
inline bytes marked(int from, int to, std::size_t size) {
  bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = mark(from, to, i);
  return out;
}
inline void append(bytes& all, bytes const& more) { all.insert(all.end(), more.begin(), more.end()); }

struct failures {
  std::vector<std::string> texts;
  int rank = 0;
  std::size_t most = 5003;  // the largest size to try
  void expect(bool right, std::string const& what) {
    if (!right) texts.push_back("rank " + std::to_string(rank) + ": " + what);
  }
};

// The size of the message from i to j: uneven, many of them zero.
inline std::size_t uneven(int i, int j, std::size_t n) {
  return (static_cast<std::size_t>(i * 5 + j * 3) * n) % 17 % (n + 1);
}

inline std::vector<std::size_t> sizes_to_try(failures const& out) {
  std::vector<std::size_t> sizes;
  for (std::size_t const n : {0U, 1U, 2U, 5U, 8U, 101U, 5003U}) {
    if (n <= out.most) sizes.push_back(n);
  }
  return sizes;
}

template <class T, class B>
void check_gathers(T& t, B& backend, failures& out) {
  int const P = t.size();
  int const me = t.rank();
  for (std::size_t const n : sizes_to_try(out)) {
    std::string const at = " of " + std::to_string(n) + " bytes, " + std::to_string(P) + " ranks";
    bytes want;
    for (int r = 0; r < P; ++r) append(want, marked(r, 0, n));
    bytes all(want.size());
    bytes const own = marked(me, 0, n);
    topsum::collective::all_gather(t, backend, backend.view(own), backend.view(all));
    backend.wait();
    out.expect(all == want, "all_gather" + at);

    std::fill(all.begin(), all.end(), std::byte{});
    auto const place = static_cast<std::size_t>(me) * n;
    std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(place));
    topsum::collective::all_gather(t, backend, backend.view(all).subspan(place, n), backend.view(all));
    backend.wait();
    out.expect(all == want, "all_gather in place" + at);

    std::vector<std::size_t> sizes;
    want.clear();
    for (int r = 0; r < P; ++r) {
      sizes.push_back(uneven(r, 1, n));
      append(want, marked(r, 1, sizes.back()));
    }
    all.assign(want.size(), std::byte{});
    bytes const mine = marked(me, 1, sizes[static_cast<std::size_t>(me)]);
    topsum::collective::all_gather_v(t, backend, backend.view(mine), backend.view(all), sizes);
    backend.wait();
    out.expect(all == want, "all_gather_v" + at);
  }
}

template <class T, class B>
void check_all_to_alls(T& t, B& backend, failures& out) {
  int const P = t.size();
  int const me = t.rank();
  for (std::size_t const n : sizes_to_try(out)) {
    std::string const at = " of " + std::to_string(n) + " bytes, " + std::to_string(P) + " ranks";
    bytes from;
    bytes want;
    for (int r = 0; r < P; ++r) {
      append(from, marked(me, r, n));
      append(want, marked(r, me, n));
    }
    bytes to(want.size());
    topsum::collective::all_to_all(t, backend, backend.view(std::as_const(from)), backend.view(to));
    backend.wait();
    out.expect(to == want, "all_to_all" + at);

    std::vector<std::size_t> from_sizes;
    std::vector<std::size_t> to_sizes;
    from.clear();
    want.clear();
    for (int r = 0; r < P; ++r) {
      from_sizes.push_back(uneven(me, r, n));
      to_sizes.push_back(uneven(r, me, n));
      append(from, marked(me, r, from_sizes.back()));
      append(want, marked(r, me, to_sizes.back()));
    }
    to.assign(want.size(), std::byte{});
    topsum::collective::all_to_all_v(t, backend, backend.view(std::as_const(from)), from_sizes, backend.view(to),
                                     to_sizes);
    backend.wait();
    out.expect(to == want, "all_to_all_v" + at);
  }
}

// Values whose sum depends on the order, so that an order by arrival would show: equal bits are asked for on every rank.
template <class V, class T, class B>
void check_all_reduce(T& t, B& backend, failures& out) {
  auto const P = static_cast<std::size_t>(t.size());
  for (std::size_t const n : sizes_to_try(out)) {
    std::string const at = " of " + std::to_string(n) + " values, " + std::to_string(P) + " ranks";
    auto const value = [](std::size_t rank, std::size_t i) { return static_cast<V>((rank * 13 + i * 7) % 31); };
    std::vector<V> sum(n);
    std::vector<V> most(n);
    std::vector<V> fine(n);
    std::vector<V> scratch(n / P + 1);
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = most[i] = value(static_cast<std::size_t>(t.rank()), i);
      fine[i] = static_cast<V>(static_cast<V>(1) / static_cast<V>(static_cast<std::size_t>(t.rank()) * 1000 + i + 3));
    }
    topsum::collective::all_reduce(t, backend, backend.view(sum), topsum::combine::sum, backend.view(scratch));
    topsum::collective::all_reduce(t, backend, backend.view(most), topsum::combine::maximum, backend.view(scratch));
    topsum::collective::all_reduce(t, backend, backend.view(fine), topsum::combine::sum, backend.view(scratch));
    backend.wait();
    bool right = true;
    for (std::size_t i = 0; i < n; ++i) {
      V total{};
      V largest{};
      for (std::size_t r = 0; r < P; ++r) {
        total = static_cast<V>(total + value(r, i));
        largest = std::max(largest, value(r, i));
      }
      right = right && sum[i] == total && most[i] == largest;
    }
    out.expect(right, "all_reduce" + at);

    bytes const mine{reinterpret_cast<std::byte const*>(fine.data()),
                     reinterpret_cast<std::byte const*>(fine.data() + n)};
    bytes all(mine.size() * P);
    topsum::collective::all_gather(t, backend, backend.view(mine), backend.view(all));
    backend.wait();
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) same = same && all[i] == mine[i % mine.size()];
    out.expect(same, "all_reduce gives other bits on another rank," + at);
  }
}

template <class T, class B>
void check_broadcast(T& t, B& backend, failures& out) {
  for (std::size_t const n : sizes_to_try(out)) {
    for (int root = 0; root < t.size(); ++root) {
      bytes data = t.rank() == root ? marked(root, 2, n) : bytes(n);
      topsum::collective::broadcast(t, backend, backend.view(data), root);
      backend.wait();
      out.expect(data == marked(root, 2, n),
                 "broadcast of " + std::to_string(n) + " bytes from " + std::to_string(root));
    }
  }
}

// Several groups at once, finished in another order; messages of a pair keep theirs.
template <class T, class B>
void check_groups(T& t, B& backend, failures& out) {
  int const P = t.size();
  auto const place = [P](int group, int rank) {
    return static_cast<std::size_t>(group) * static_cast<std::size_t>(P) + static_cast<std::size_t>(rank);
  };
  using send = topsum::transfer<topsum::const_bytes_in<B>>;
  using receive = topsum::transfer<topsum::bytes_in<B>>;
  for (std::size_t const n : sizes_to_try(out)) {
    std::vector<bytes> from;
    std::vector<bytes> to;
    for (int g = 0; g < 3; ++g) {
      for (int r = 0; r < P; ++r) {
        from.push_back(marked(t.rank() + 10 * g, r, n));
        to.emplace_back(n);
      }
    }
    std::vector<typename T::ticket> tickets;
    for (int g = 0; g < 3; ++g) {
      std::vector<send> sends;
      std::vector<receive> receives;
      for (int r = 0; r < P; ++r) {
        if (r == t.rank()) continue;
        sends.push_back({r, backend.view(std::as_const(from[place(g, r)]))});
        receives.push_back({r, backend.view(to[place(g, r)])});
      }
      tickets.push_back(
          topsum::collective::start(t, backend, std::span<send const>{sends}, std::span<receive const>{receives}));
    }
    if (t.rank() % 2 == 0) std::reverse(tickets.begin(), tickets.end());
    for (auto& ticket : tickets) t.finish(ticket);
    bool right = true;
    for (int g = 0; g < 3; ++g) {
      for (int r = 0; r < P; ++r) {
        right = right && (r == t.rank() || to[place(g, r)] == marked(r + 10 * g, t.rank(), n));
      }
    }
    out.expect(right, "three groups of messages of " + std::to_string(n) + " bytes");
  }
}

// All of it.
template <class T, class B>
std::vector<std::string> check_transport(T& t, B& backend, std::size_t most = 5003) {
  failures out{{}, t.rank(), most};
  check_groups(t, backend, out);
  check_gathers(t, backend, out);
  check_all_to_alls(t, backend, out);
  check_all_reduce<float>(t, backend, out);
  check_all_reduce<double>(t, backend, out);
  check_all_reduce<std::uint32_t>(t, backend, out);
  check_all_reduce<std::uint64_t>(t, backend, out);
  check_broadcast(t, backend, out);
  return out.texts;
}

}  // namespace test

#endif
