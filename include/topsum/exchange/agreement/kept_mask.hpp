// SPDX-License-Identifier: BSL-1.0
/// \file
/// Agreement: a support that is kept over steps.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_KEPT_MASK_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_KEPT_MASK_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/exchange/agreement/leader.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Agreement: the support that another one finds, kept for `every` steps.
///
///     topsum::aligned{topsum::kept_mask{topsum::leader{}, 16}}
///
/// Words sent: those of `from` in one step of `every`. In between selections are made and not looked at, but residuals grow where the mask
/// is not, so that a later one takes them up. Source: masks kept over steps as in MiCRO's and sparse training's practice.
/// What is kept lies on the host too, k indices, so that a plan that is saved goes on with it.
template <class Agreement = leader>
struct kept_mask {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "kept_mask";
  static constexpr bool keeps_scope = requires { requires Agreement::keeps_scope; };

  Agreement from{};
  std::uint64_t every = 16;  ///< steps from one agreement to the next

  constexpr explicit kept_mask(Agreement on = {}, std::uint64_t steps = 16) : from{on}, every{steps} {}

  void validate() const {
    if (every == 0) throw error{errc::bad_argument, "kept_mask: .every = 0; write at least 1"};
    from.validate();
  }

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    return Agreement::support_at_most(s);
  }

  /// The indices, and how many they are.
  template <class R>
  struct state {
    explicit state(exchange_shape const& s) : indices(Agreement::support_at_most(s)), inner{s} {}
    template <class V>
    void visit(V& visitor) {
      visitor("indices", indices);
      visitor("count", count);
      visitor("inner", inner);
    }
    /// Whether loaded indices increase and lie in [0, n).
    [[nodiscard]] bool fits(exchange_shape const& s) const {
      if (count > indices.size() || !detail::exchange_state_fits(inner, s)) return false;
      for (std::size_t i = 0; i < count; ++i) {
        if (indices[i] >= s.n || (i > 0 && indices[i] <= indices[i - 1])) return false;
      }
      return true;
    }
    std::vector<std::uint64_t> indices;
    std::uint64_t count = none;
    typename Agreement::template state<R> inner;
  };

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    workspace(B& b, K const& codec, exchange_shape const& s, kept_mask const& stage)
        : on{b, codec, s, stage.from}, host(on.capacity()) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return on.capacity(); }
    typename Agreement::template workspace<B, R, I, K> on;
    std::vector<I> host;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t count, S const& before, S& after,
                    M& memory, View support) const {
    using I = typename M::index;
    auto& backend = channel.backend();
    std::span<I> const host{memory.host};
    after = before;
    if (before.count == none || channel.step() % every == 0) {
      std::size_t const agreed = from.agree(channel, codec, selection, count, before.inner, after.inner, memory.on,
                                            support);
      backend.read(support.indices.subspan(0, agreed), host.first(agreed));
      std::ranges::copy(host.first(agreed), after.indices.begin());
      after.count = agreed;
      return agreed;
    }
    channel.open();
    auto const kept = static_cast<std::size_t>(before.count);
    std::ranges::transform(std::span{before.indices}.first(kept), host.begin(),
                           [](std::uint64_t i) { return static_cast<I>(i); });
    backend.write(std::span<I const>{host.first(kept)}, support.indices.subspan(0, kept));
    backend.fill(support.count, kept);
    return kept;
  }

  void describe(description& out) const {
    out.open(name);
    out("from", from);
    out("every", every);
    out.close();
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};
};

}  // namespace topsum

#endif
