// SPDX-License-Identifier: BSL-1.0
/// \file
/// Agreement: one rank's selection, the ranks in turn.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_LEADER_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_LEADER_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/detail/agreement.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Agreement: the ranks lead in turn, one a step; the leader's selection is the support.
///
/// Words sent: k log2(n) / 32 by the leader to each child of a binomial tree, or fewer with a codec for indices; 2 a child for the count.
/// Latency log P. Source: ScaleCom's cyclic local top-k (Chen et al., NeurIPS'20, section 3).
struct leader {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "leader";
  static constexpr bool keeps_scope = true;

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept { return s.capacity; }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, leader const&)
        : shape{s},
          message{b.template allocate<std::byte>(detail::index_codec_of(codec).bytes_at_most(s.capacity, 1, s.n))},
          fault{b.template allocate<std::uint32_t>(1)} {
      b.fill(fault.view(), std::uint32_t{0});
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return shape.capacity; }

    exchange_shape shape;
    typename B::template buffer<std::byte> message;
    typename B::template buffer<std::uint32_t> fault;
  };

  /// Writes the support's indices and count to `support`, the same on every rank; returns the count. Collective; opens the step.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const&, S&, M& memory,
                    View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const indices = detail::index_codec_of(codec);
    channel.open();
    auto const ranks = static_cast<std::uint64_t>(memory.shape.ranks);
    auto const root = static_cast<int>(channel.step() % ranks);
    std::uint64_t number = count;
    channel.broadcast(number, root);
    if (number > memory.shape.capacity)
      throw error{errc::corrupt_message,
                  detail::sentence("aligned: rank ", root, " announced more entries than may travel"), root};
    auto const agreed = static_cast<std::size_t>(number);
    auto const message = memory.message.view().subspan(0, indices.bytes(agreed, memory.shape.n));
    auto const chosen = selection.indices.subspan(0, memory.shape.rank == root ? agreed : 0);
    if (memory.shape.rank == root && agreed != 0)
      indices.template encode<B, I>(backend, typename B::template span<I const>{chosen}, 0, memory.shape.n, message);
    channel.broadcast(message, root);
    backend.fill(support.count, agreed);
    if (agreed == 0) return 0;
    indices.template decode<B, I>(backend, const_bytes_in<B>{message}, 0, memory.shape.n,
                                  support.indices.subspan(0, agreed));
    backend.check(support, 0, memory.shape.n, memory.fault.view());
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "aligned: the leader's indices do not increase within [0, n)"};
    return agreed;
  }
};

}  // namespace topsum

#endif
