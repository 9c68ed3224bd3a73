// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: all ranks agree on one support, then sum their values on it.
#ifndef TOPSUM_EXCHANGE_ALIGNED_HPP
#define TOPSUM_EXCHANGE_ALIGNED_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/exchange/agreement/leader.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Exchange: ranks agree on which indices travel (`leader`, `owners`, ...: see `exchange/agreement/`); every rank then contributes its accumulators there, whether it
/// selected them or not, to a dense allreduce of m values.
///
///     topsum::aligned{topsum::leader{}}    // ScaleCom's CLT-k
///
/// Values travel as they are and are summed by the transport's allreduce: as deterministic as that is, or in an order fixed by P where
/// it is built. Only indices are coded. The result has m entries, none is re-selected, and every rank's residual is cleared on them.
/// Words sent by a rank (32-bit types): 2m(P-1)/P, and for the agreement see there; + 12 a peer for headers.
/// Latency 2 log P to 2P, and the agreement's. Memory: O(m). Any P.
/// Prefer it where ranks' gradients resemble each other: what one rank finds large is then worth all ranks' values.
template <class Agreement = leader>
struct aligned {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "aligned";
  static constexpr exchange_kind kind = exchange_kind::aligned;

  Agreement agreement{};

  constexpr explicit aligned(Agreement on = {}) : agreement{on} {}

  void validate() const { agreement.validate(); }

  /// Whether the support is some rank's whole selection.
  static constexpr bool keeps_scope = requires { requires Agreement::keeps_scope; };
  /// Whether all ranks must select alike in the first place.
  static constexpr bool needs_alike = requires { requires Agreement::needs_alike; };

  /// What the agreement keeps between steps.
  template <class R>
  using state = typename Agreement::template state<R>;

  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, aligned const& stage)
        : shape{s},
          on{b, codec, s, stage.agreement},
          result{b, on.capacity()},
          applied{b, on.capacity()},
          scratch{b.template allocate<R>(on.capacity() / static_cast<std::size_t>(s.ranks) + 1)} {}
    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    exchange_shape shape;
    typename Agreement::template workspace<B, R, I, K> on;
    entries<B, R, I> result, applied;
    typename B::template buffer<R> scratch;
  };

  /// One step; collective. `look_up(list)` fills a list's values with this rank's accumulators at its indices.
  template <class B, class C, class R, class I, class K, class S, class LookUp>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, S const& before, S& after, workspace<B, R, I, K>& memory,
                                LookUp const& look_up) const {
    B& backend = channel.backend();
    auto const applied = memory.applied.view();
    std::size_t const agreed = agreement.agree(channel, codec, selection, count, before, after, memory.on, applied);
    look_up(applied);
    auto const result = memory.result.view();
    backend.copy(typename B::template span<I const>{applied.indices.subspan(0, agreed)}, result.indices);
    backend.copy(typename B::template span<R const>{applied.values.subspan(0, agreed)}, result.values);
    backend.fill(result.count, agreed);
    channel.template all_reduce<R>(result.values.subspan(0, agreed), memory.scratch.view());
    return {result, applied, agreed, {}};
  }

  void describe(description& out) const {
    out.open(name);
    out("agreement", agreement);
    out.close();
  }
};

}  // namespace topsum

#endif
