// SPDX-License-Identifier: BSL-1.0
/// \file
/// Agreement: the support of another exchange's result.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_CHOSEN_BY_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_CHOSEN_BY_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Agreement: the support is what another exchange's result would have: it runs first, and of its result only the indices are used.
///
///     topsum::aligned{topsum::chosen_by{topsum::interleaved_quota{}}}
///
/// Words sent: that exchange's. What it reduces decides by all ranks' sums, and every rank then gives its whole accumulators there, those
/// that it did not select included. Costs half again as many words as the exchange alone for the values.
template <exchange Exchange>
struct chosen_by {
  static_assert(Exchange::kind != exchange_kind::dense && Exchange::kind != exchange_kind::aligned,
                "topsum: chosen_by asks for an exchange of selected entries; `dense` and `aligned` are none");
  static_assert(std::constructible_from<typename Exchange::template state<float>, exchange_shape const&>,
                "topsum: chosen_by asks for one exchange; `hierarchical` and `automatic` are made of several");
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "chosen_by";

  Exchange by;

  constexpr explicit chosen_by(Exchange exchange) : by{exchange} {}

  void validate() const { by.validate(); }

  /// Entries that a support may have, for a shape: all ranks' selections, each filled up by an entry an owner.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    auto const ranks = static_cast<std::size_t>(s.ranks);
    return std::min(s.n, (s.capacity + ranks) * ranks);
  }

  template <class R>
  using state = typename Exchange::template state<R>;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, chosen_by const& stage) : on{b, codec, s, stage.by} {}
    [[nodiscard]] std::size_t capacity() const noexcept { return on.result_capacity(); }
    typename Exchange::template workspace<B, R, I, K> on;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const& before, S& after,
                    M& memory, View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const chosen = by.run(channel, codec, selection, count, before, after, memory.on).result;
    std::size_t const agreed = backend.read(chosen.count);
    backend.copy(typename B::template span<I const>{chosen.indices.subspan(0, agreed)}, support.indices);
    backend.fill(support.count, agreed);
    return agreed;
  }

  void describe(description& out) const {
    out.open(name);
    out("by", by);
    out.close();
  }
};

}  // namespace topsum

#endif
