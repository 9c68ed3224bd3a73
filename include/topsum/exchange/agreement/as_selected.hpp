// SPDX-License-Identifier: BSL-1.0
/// \file
/// Agreement: all ranks selected alike.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_AS_SELECTED_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_AS_SELECTED_HPP

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <topsum/detail/agreement.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Agreement: none is needed, since all ranks select the same indices: the policy is one that does (`shared_random`).
///
/// Words sent: none but headers. A rank that selects another number of entries is found out (errc::mismatch, on every rank).
/// Source: random-k with a shared seed (Stich et al., NeurIPS'18; its allreduce-friendly form in PowerSGD's comparison).
struct as_selected {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "as_selected";
  static constexpr bool needs_alike = true;
  static constexpr bool keeps_scope = true;

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept { return s.capacity; }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B&, K const&, exchange_shape const& s, as_selected const&)
        : shape{s}, ours(static_cast<std::size_t>(s.ranks)), theirs(ours.size()) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return shape.capacity; }
    exchange_shape shape;
    std::vector<std::size_t> ours, theirs;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const&, View selection, std::size_t count, S const&, S&, M& memory,
                    View support) const {
    std::ranges::fill(memory.ours, count);
    channel.open(memory.ours, memory.theirs);
    for (std::size_t r = 0; r < memory.theirs.size(); ++r) {
      if (memory.theirs[r] != count)
        throw error{
            errc::mismatch,
            detail::sentence("aligned: rank ", r, " selected ", memory.theirs[r], " entries where this rank has ",
                             count, "; as_selected needs a policy that selects alike on all ranks"),
            static_cast<int>(r)};
    }
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    backend.copy(typename B::template span<I const>{selection.indices.subspan(0, count)}, support.indices);
    backend.fill(support.count, count);
    return count;
  }
};

}  // namespace topsum

#endif
