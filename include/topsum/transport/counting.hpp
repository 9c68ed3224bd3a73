// SPDX-License-Identifier: BSL-1.0
/// \file
/// A transport that counts what another one sends, so that formulas of cost are asserted, not believed.
#ifndef TOPSUM_TRANSPORT_COUNTING_HPP
#define TOPSUM_TRANSPORT_COUNTING_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum {

/// What one rank has sent.
struct sent_tally {
  std::uint64_t messages = 0;  ///< of more than zero bytes
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> messages_to;  ///< by peer
  std::vector<std::uint64_t> bytes_to;     ///< by peer
};

namespace detail {
template <class T>
struct ticket_of {};
template <class T>
  requires requires { typename T::ticket; }
struct ticket_of<T> {
  using ticket = typename T::ticket;
};
}  // namespace detail

/// `counting{transport}` has the verbs that `T` has, for the same spans, and tallies this rank's messages and bytes by peer.
/// Handles are cheap to copy and share their tally. Counting allocates nothing and sends nothing.
///
/// Messages count when they are posted. A native collective counts as the ring that `transport/verbs.hpp` builds, whatever its
/// library does, so that counts compare between transports: `all_gather`, `all_gather_v` and `all_reduce` count the same either
/// way; `all_to_all` too (a message to each peer, but blocks of zero bytes). `broadcast` counts as a pipeline in which each rank
/// but the last sends the bytes once to the next; the built tree sends as often in all, from other ranks.
template <transport T>
class counting : public detail::ticket_of<T> {
 public:
  static constexpr bool stream_ordered = is_stream_ordered<T>;
  static constexpr bool stages_host_memory = topsum::stages_host_memory<T>;

  explicit counting(T inner) : inner_{std::move(inner)}, tally_{std::make_shared<sent_tally>()} { reset(); }

  [[nodiscard]] int rank() const { return inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }
  [[nodiscard]] T& inner() noexcept { return inner_; }

  /// What has been sent through all copies of this handle since the last `reset`; local.
  [[nodiscard]] sent_tally const& tally() const noexcept { return *tally_; }
  /// All counts to zero; local.
  void reset() {
    auto const ranks = static_cast<std::size_t>(size());
    tally_->messages = tally_->bytes = 0;
    tally_->messages_to.assign(ranks, 0);
    tally_->bytes_to.assign(ranks, 0);
  }

  template <class ConstBytes, class Bytes>
    requires can_send_recv<T, Bytes, ConstBytes>
  [[nodiscard]] auto start(std::span<transfer<ConstBytes> const> sends, std::span<transfer<Bytes> const> receives) {
    auto posted = inner_.start(sends, receives);
    for (auto const& [peer, bytes] : sends) count(peer, bytes.size());
    return posted;
  }
  template <class Ticket>
    requires requires(T& t, Ticket& group) { t.finish(group); }
  void finish(Ticket& group) {
    inner_.finish(group);
  }

  template <class ConstBytes, class Bytes>
    requires can_all_gather<T, Bytes, ConstBytes>
  void all_gather(ConstBytes mine, Bytes all) {
    inner_.all_gather(mine, all);
    count_ring(next(), [&](int) { return mine.size(); });
  }
  template <class ConstBytes, class Bytes>
    requires can_all_gather_v<T, Bytes, ConstBytes>
  void all_gather_v(ConstBytes mine, Bytes all, host_span<std::size_t const> sizes) {
    inner_.all_gather_v(mine, all, sizes);
    count_ring(next(), [&](int block) { return sizes[static_cast<std::size_t>(block)]; });
  }
  template <class ConstBytes, class Bytes>
    requires can_all_to_all<T, Bytes, ConstBytes>
  void all_to_all(ConstBytes from, Bytes to) {
    inner_.all_to_all(from, to);
    count_pairs([&](int) { return from.size() / static_cast<std::size_t>(size()); });
  }
  template <class ConstBytes, class Bytes>
    requires can_all_to_all_v<T, Bytes, ConstBytes>
  void all_to_all_v(ConstBytes from, host_span<std::size_t const> from_sizes, Bytes to,
                    host_span<std::size_t const> to_sizes) {
    inner_.all_to_all_v(from, from_sizes, to, to_sizes);
    count_pairs([&](int peer) { return from_sizes[static_cast<std::size_t>(peer)]; });
  }
  template <class Values>
    requires can_all_reduce<T, Values>
  void all_reduce(Values values, combine how) {
    inner_.all_reduce(values, how);
    collective::detail::even_blocks const blocks{values.size(), static_cast<std::size_t>(size()),
                                                 sizeof(typename Values::element_type)};
    count_ring(next(), blocks);                 // reduce-scatter: ends with block `next` here
    count_ring((next() + 1) % size(), blocks);  // all-gather: begins with it
  }
  template <class Bytes>
    requires can_broadcast<T, Bytes>
  void broadcast(Bytes bytes, int root) {
    inner_.broadcast(bytes, root);
    if (next() != root) count(next(), bytes.size());
  }

 private:
  [[nodiscard]] int next() const { return (rank() + 1) % size(); }

  void count(int peer, std::size_t bytes) {
    if (bytes == 0) return;
    ++tally_->messages;
    tally_->bytes += bytes;
    ++tally_->messages_to[static_cast<std::size_t>(peer)];
    tally_->bytes_to[static_cast<std::size_t>(peer)] += bytes;
  }

  /// Every block but one to the successor.
  template <class Bytes>
  void count_ring(int unsent, Bytes bytes_of) {
    for (int block = 0; block < size(); ++block) {
      if (block != unsent) count(next(), bytes_of(block));
    }
  }

  /// A block to every peer.
  template <class Bytes>
  void count_pairs(Bytes bytes_of) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) count(peer, bytes_of(peer));
    }
  }

  T inner_;
  std::shared_ptr<sent_tally> tally_;
};

}  // namespace topsum

#endif
