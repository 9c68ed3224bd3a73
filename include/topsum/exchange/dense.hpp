// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: all n values of every rank.
#ifndef TOPSUM_EXCHANGE_DENSE_HPP
#define TOPSUM_EXCHANGE_DENSE_HPP

#include <cstddef>
#include <string_view>

#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Exchange: the whole accumulator is applied, by an allreduce of n values. The baseline, and right at high densities.
///
/// Words sent by a rank: 2n(P-1)/P (ring; a native allreduce is counted as one) + 12 a peer. Latency 2 log P or 2P.
/// Sums, sends and keeps `wide_t<T>`: a gradient of 16 bits travels as floats, 4 bytes a value, and takes n floats of memory.
/// Deterministic where it is built from sends and receives (an order fixed by the block); over a native allreduce as much as
/// that library is. The selection slot is not used.
struct dense {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "dense";
  static constexpr exchange_kind kind = exchange_kind::dense;

  void validate() const noexcept {}

  /// Scratch of the ring, where the transport has no allreduce of its own.
  template <class Channel, class R>
  struct workspace {
    using backend = typename Channel::backend_type;
    workspace(backend& b, exchange_shape const& s)
        : scratch{b.template allocate<R>(
              Channel::template all_reduce_needs_scratch<R> ? s.n / static_cast<std::size_t>(s.ranks) + 1 : 0)} {}
    typename backend::template buffer<R> scratch;
  };

  /// Replaces `values` by their sum over ranks; collective, after the channel was opened.
  template <class Channel, class R>
  void run(Channel& channel, typename Channel::backend_type::template span<R> values,
           workspace<Channel, R>& memory) const {
    channel.template all_reduce<R>(values, memory.scratch.view());
  }
};

}  // namespace topsum

#endif
