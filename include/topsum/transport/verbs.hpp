// SPDX-License-Identifier: BSL-1.0
/// \file
/// Collectives over any transport: its own verb where it has one, else built, in the end always from `start` and `finish`.
///
/// | verb         | built as                               | messages a rank | bytes a rank sends        |
/// |--------------|----------------------------------------|-----------------|---------------------------|
/// | all_gather   | ring                                   | P - 1           | all but the next block    |
/// | all_gather_v | ring                                   | P - 1           | all but the next block    |
/// | all_to_all   | pairs in rotated order                 | P - 1           | all but its own block     |
/// | all_to_all_v | pairs in rotated order                 | P - 1           | all but its own block     |
/// | all_reduce   | ring reduce-scatter, ring all-gather   | 2 (P - 1)       | about 2 n (P - 1) / P     |
/// | broadcast    | binomial tree                          | <= log2 P       | bytes times its children  |
///
/// All are collective, allocate nothing, take any number of ranks and any sizes (equal on both sides, else the transport
/// throws), and give the same bits on every rank and in every run. They throw what the transport throws, and errc::bad_argument
/// where sizes cannot be right. A transport that is not stream-ordered touches memory at once: the backend is drained first.
#ifndef TOPSUM_TRANSPORT_VERBS_HPP
#define TOPSUM_TRANSPORT_VERBS_HPP

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <topsum/concepts.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// Whether `C` reads and writes memory in the order of the backend's stream: it says so by
/// `static constexpr bool stream_ordered = true`. Others work on memory while the host calls.
template <class C>
inline constexpr bool is_stream_ordered = requires { requires C::stream_ordered; };

namespace collective {

/// Host memory as collectives need a backend: where there is none, or none is wanted.
struct host_memory {
  template <class T>
  using span = host_span<T>;
  void copy(host_span<std::byte const> from, host_span<std::byte> to) {
    std::memcpy(to.data(), from.data(), from.size());
  }
  void wait() {}
};

/// Waits until what the backend has queued has run, unless the transport keeps the stream's order itself. Local.
template <transport C, class B>
void drain(C const&, B& backend) {
  if constexpr (!is_stream_ordered<C>) backend.wait();
}

namespace detail {

inline void expect(bool right, std::string_view verb, std::string_view sentence) {
  if (!right) throw error{errc::bad_argument, std::string{verb}.append(": ").append(sentence)};
}

/// Walks round the blocks that fill a buffer one behind the other: no table of offsets, so no memory.
template <class Size>
class block_walk {
 public:
  block_walk(int blocks, int at, Size size) : blocks_{blocks}, at_{at}, size_{size} {
    for (int b = 0; b < blocks; ++b) {
      if (b == at) begin_ = total_;
      total_ += size(b);
    }
  }
  [[nodiscard]] int at() const noexcept { return at_; }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }
  [[nodiscard]] std::size_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t size() const { return size_(at_); }
  void next() {
    begin_ += size();
    if (++at_ == blocks_) at_ = 0;
    if (at_ == 0) begin_ = 0;
  }
  void previous() {
    if (at_ == 0) begin_ = total_;
    at_ = (at_ == 0 ? blocks_ : at_) - 1;
    begin_ -= size();
  }
  template <class Span>
  [[nodiscard]] Span of(Span whole) const {
    return whole.subspan(begin_, size());
  }

 private:
  int blocks_;
  int at_;
  Size size_;
  std::size_t begin_ = 0;
  std::size_t total_ = 0;
};

/// Whether two views begin at the same place; unknown places differ.
template <class A, class B>
bool same_place(A a, B b) {
  if constexpr (requires { memory_access<A>::address(a) == memory_access<B>::address(b); }) {
    return memory_access<A>::address(a) == memory_access<B>::address(b);
  } else {
    return false;
  }
}

/// Copies this rank's own block, unless it is there already.
template <class B>
void copy_own(B& backend, const_bytes_in<B> from, bytes_in<B> to) {
  if (from.size() != 0 && !same_place(from, to)) backend.copy(from, to);
}

/// One message there, one from elsewhere.
template <transport C, class B>
void trade(C& t, B& backend, int to, const_bytes_in<B> out, int from, bytes_in<B> in) {
  if (out.size() == 0 && in.size() == 0) return;
  transfer<const_bytes_in<B>> const send{to, out};
  transfer<bytes_in<B>> const receive{from, in};
  drain(t, backend);
  auto ticket = t.start(std::span<transfer<const_bytes_in<B>> const>{&send, out.size() == 0 ? 0U : 1U},
                        std::span<transfer<bytes_in<B>> const>{&receive, in.size() == 0 ? 0U : 1U});
  t.finish(ticket);
}

/// Ring: begins with block `mine.at()`, ends with all of them.
template <transport C, class B, class Size>
void ring_gather(C& t, B& backend, block_walk<Size> mine, bytes_in<B> all) {
  int const P = t.size();
  int const next = (t.rank() + 1) % P;
  int const before = (t.rank() + P - 1) % P;
  for (int round = 1; round < P; ++round) {
    bytes_in<B> const out = mine.of(all);
    mine.previous();
    trade(t, backend, next, out, before, mine.of(all));
  }
}

template <class Span, std::size_t... i>
auto transfers(Span empty, std::index_sequence<i...>) {
  return std::array<transfer<Span>, sizeof...(i)>{(static_cast<void>(i), transfer<Span>{0, empty})...};
}

/// Round s: to rank + s, from rank - s. So no rank is everybody's first. A few rounds travel together.
template <transport C, class B, class Sizes>
void rotate(C& t, B& backend, block_walk<Sizes> to, const_bytes_in<B> out, block_walk<Sizes> from, bytes_in<B> in) {
  constexpr std::size_t together = 8;
  auto sends = transfers(out.subspan(0, 0), std::make_index_sequence<together>{});
  auto receives = transfers(in.subspan(0, 0), std::make_index_sequence<together>{});
  drain(t, backend);
  for (int round = 1; round < t.size();) {
    std::size_t n_sends = 0;
    std::size_t n_receives = 0;
    for (std::size_t i = 0; i < together && round < t.size(); ++i, ++round) {
      to.next();
      from.previous();
      if (to.size() != 0) sends[n_sends++] = {to.at(), to.of(out)};
      if (from.size() != 0) receives[n_receives++] = {from.at(), from.of(in)};
    }
    auto ticket = t.start(std::span<transfer<const_bytes_in<B>> const>{sends.data(), n_sends},
                          std::span<transfer<bytes_in<B>> const>{receives.data(), n_receives});
    t.finish(ticket);
  }
}

/// Block b of n values over `blocks` is [b n / blocks, (b + 1) n / blocks).
struct even_blocks {
  std::size_t n;
  std::size_t blocks;
  std::size_t value_bytes;
  std::size_t operator()(int block) const noexcept {
    auto const b = static_cast<std::size_t>(block);
    return ((b + 1) * n / blocks - b * n / blocks) * value_bytes;
  }
};

struct add_to {
  template <class V>
  void operator()(std::size_t, V& sum, V& value) const {
    sum = static_cast<V>(sum + value);
  }
};

struct raise_to {
  template <class V>
  void operator()(std::size_t, V& largest, V& value) const {
    if (largest < value) largest = value;
  }
};

}  // namespace detail

/// Starts a group of messages when the backend's memory may be touched. Local; returns the transport's ticket.
template <transport C, class B>
[[nodiscard]] auto start(C& t, B& backend, std::span<transfer<const_bytes_in<B>> const> sends,
                         std::span<transfer<bytes_in<B>> const> receives) {
  drain(t, backend);
  return t.start(sends, receives);
}

/// A group of messages, there and done: `start`, then `finish`.
template <transport C, class B>
void send_recv(C& t, B& backend, std::span<transfer<const_bytes_in<B>> const> sends,
               std::span<transfer<bytes_in<B>> const> receives) {
  auto ticket = collective::start(t, backend, sends, receives);
  t.finish(ticket);
}

/// Every rank's `mine`, in rank order, in `all` (P times as many bytes). `mine` may be the rank's own block of `all`, then on
/// every rank.
template <transport C, class B>
void all_gather(C& t, B& backend, const_bytes_in<B> mine, bytes_in<B> all) {
  detail::expect(all.size() == mine.size() * static_cast<std::size_t>(t.size()), "all_gather",
                 "the result holds a block of equal size for each rank");
  if constexpr (can_all_gather<C, bytes_in<B>, const_bytes_in<B>>) {
    drain(t, backend);
    t.all_gather(mine, all);
  } else {
    detail::block_walk blocks{t.size(), t.rank(), [n = mine.size()](int) { return n; }};
    detail::copy_own(backend, mine, blocks.of(all));
    detail::ring_gather(t, backend, blocks, all);
  }
}

/// The same with blocks of `sizes[rank]` bytes; all ranks pass the same sizes.
template <transport C, class B>
void all_gather_v(C& t, B& backend, const_bytes_in<B> mine, bytes_in<B> all, host_span<std::size_t const> sizes) {
  detail::expect(sizes.size() == static_cast<std::size_t>(t.size()), "all_gather_v", "one size for each rank");
  detail::block_walk blocks{t.size(), t.rank(), [sizes](int b) { return sizes[static_cast<std::size_t>(b)]; }};
  detail::expect(mine.size() == blocks.size() && all.size() == blocks.total(), "all_gather_v",
                 "the own block and the result are as long as the sizes say");
  if constexpr (can_all_gather_v<C, bytes_in<B>, const_bytes_in<B>>) {
    drain(t, backend);
    t.all_gather_v(mine, all, sizes);
  } else {
    detail::copy_own(backend, mine, blocks.of(all));
    detail::ring_gather(t, backend, blocks, all);
  }
}

/// Block j of `from` to rank j, block i of `to` from rank i: P blocks of equal size in each. No overlap.
template <transport C, class B>
void all_to_all(C& t, B& backend, const_bytes_in<B> from, bytes_in<B> to) {
  std::size_t const block = from.size() / static_cast<std::size_t>(t.size());
  detail::expect(from.size() == to.size() && block * static_cast<std::size_t>(t.size()) == from.size(), "all_to_all",
                 "both buffers hold a block of equal size for each rank");
  if constexpr (can_all_to_all<C, bytes_in<B>, const_bytes_in<B>>) {
    drain(t, backend);
    t.all_to_all(from, to);
  } else {
    detail::block_walk const own{t.size(), t.rank(), [block](int) { return block; }};
    detail::copy_own(backend, own.of(from), own.of(to));
    detail::rotate(t, backend, own, from, own, to);
  }
}

/// The same with blocks of `from_sizes[j]` and `to_sizes[i]` bytes, both known here; those of a pair of ranks agree.
template <transport C, class B>
void all_to_all_v(C& t, B& backend, const_bytes_in<B> from, host_span<std::size_t const> from_sizes, bytes_in<B> to,
                  host_span<std::size_t const> to_sizes) {
  auto const P = static_cast<std::size_t>(t.size());
  detail::expect(from_sizes.size() == P && to_sizes.size() == P, "all_to_all_v", "one size for each rank");
  auto const walk = [&](host_span<std::size_t const> sizes) {
    return detail::block_walk{t.size(), t.rank(), [sizes](int b) { return sizes[static_cast<std::size_t>(b)]; }};
  };
  auto const out = walk(from_sizes);
  auto const in = walk(to_sizes);
  detail::expect(from.size() == out.total() && to.size() == in.total() && out.size() == in.size(), "all_to_all_v",
                 "both buffers are as long as their sizes say, and the own block is as long in both");
  if constexpr (can_all_to_all_v<C, bytes_in<B>, const_bytes_in<B>>) {
    drain(t, backend);
    t.all_to_all_v(from, from_sizes, to, to_sizes);
  } else {
    detail::copy_own(backend, out.of(from), in.of(to));
    detail::rotate(t, backend, out, from, in, to);
  }
}

/// Combines `values` elementwise over ranks, in place. Built: `scratch` holds at least ceil(n / P) values; block b is combined
/// from rank b upwards round the ring, so that the order depends on n and P alone. A native verb needs no scratch and is as
/// deterministic as its library.
template <transport C, class B, class Values>
void all_reduce(C& t, B& backend, Values values, combine how, std::type_identity_t<Values> scratch) {
  if constexpr (can_all_reduce<C, Values>) {
    drain(t, backend);
    t.all_reduce(values, how);
  } else {
    int const P = t.size();
    detail::even_blocks const counts{values.size(), static_cast<std::size_t>(P), 1};
    detail::expect(scratch.size() >= (values.size() + counts.blocks - 1) / counts.blocks, "all_reduce",
                   "scratch holds ceil(n / ranks) values");
    auto const bytes = [](Values view) { return memory_access<Values>::as_bytes(view); };
    detail::block_walk blocks{P, t.rank(), counts};
    for (int round = 1; round < P; ++round) {
      Values const out = blocks.of(values);
      blocks.previous();
      Values const mine = blocks.of(values);
      Values const in = scratch.subspan(0, mine.size());
      detail::trade(t, backend, (t.rank() + 1) % P, bytes(out), (t.rank() + P - 1) % P, bytes(in));
      if (how == combine::sum) {
        backend.for_each(mine.size(), detail::add_to{}, mine, in);
      } else {
        backend.for_each(mine.size(), detail::raise_to{}, mine, in);
      }
    }
    if (P == 1 || values.size() == 0) return;
    auto const all = bytes(values);
    std::size_t const value_bytes = all.size() / values.size();
    detail::ring_gather(
        t, backend, detail::block_walk{P, blocks.at(), detail::even_blocks{counts.n, counts.blocks, value_bytes}}, all);
  }
}

/// The bytes of rank `root`, on every rank.
template <transport C, class B>
void broadcast(C& t, B& backend, bytes_in<B> bytes, int root) {
  int const P = t.size();
  detail::expect(root >= 0 && root < P, "broadcast", "the root is one of the ranks");
  if constexpr (can_broadcast<C, bytes_in<B>>) {
    drain(t, backend);
    t.broadcast(bytes, root);
  } else {
    int const place = (t.rank() + P - root) % P;  // from the root
    auto const none = bytes.subspan(0, 0);
    int reach = 1;
    while (reach < P && (place & reach) == 0) reach *= 2;
    if (place != 0) detail::trade(t, backend, 0, none, (place - reach + root) % P, bytes);
    for (reach /= 2; reach > 0; reach /= 2) {
      if (place + reach < P) detail::trade(t, backend, (place + reach + root) % P, bytes, 0, none);
    }
  }
}

}  // namespace collective
}  // namespace topsum

#endif
