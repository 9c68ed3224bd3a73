// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: the fastest of some, by their cost formulas and the link's measured speed.
#ifndef TOPSUM_EXCHANGE_AUTOMATIC_HPP
#define TOPSUM_EXCHANGE_AUTOMATIC_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>
#include <topsum/exchange/gather_all.hpp>
#include <topsum/exchange/interleaved_quota.hpp>
#include <topsum/exchange/ok_topk.hpp>
#include <topsum/exchange/recursive_doubling.hpp>

namespace topsum {

/// Exchange: of its candidates, the one whose predicted time is least. The first of equals.
///
///     topsum::automatic{}                                              // of four
///     topsum::automatic{topsum::gather_all{}, topsum::split_gather{}}  // of those that apply all
///     topsum::automatic{topsum::exchange_rates{.alpha = 5e-6, .beta = 3.2e-10, .gamma = 4e-9}, topsum::gather_all{}, topsum::ok_topk{}}
///
/// When the plan is made, a short probe measures what a message, a byte and a merged entry take (some milliseconds; collective),
/// ranks agree on the slowest of them, and the formulas (`exchange_cost`) decide from n, k, P and the codec. None of these changes in a
/// plan's life, so neither does the choice; only the chosen exchange's memory is allocated. With `exchange_rates` given nothing is
/// measured, and the choice is the same in every run. `report::exchange` and `report::predicted_seconds` tell what came out.
/// What is applied, what is sent, and determinism: as the chosen exchange has it. A scope's promise is kept where all candidates keep it.
/// Predictions take selections for independent, and know nothing of congestion: see docs/exchanges.md for how often they are right.
template <class... Candidates>
struct automatic {
  static_assert((predictable_exchange<Candidates> && ...),
                "topsum: a candidate of automatic does not predict its cost: see topsum::predictable_exchange");
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "automatic";
  static constexpr exchange_kind kind = ((Candidates::kind == exchange_kind::union_of) && ...)
                                            ? exchange_kind::union_of
                                            : exchange_kind::reselecting;

  std::optional<exchange_rates> rates;
  std::tuple<Candidates...> candidates;

  constexpr automatic() = default;
  constexpr explicit automatic(exchange_rates given) : rates{given} {}
  constexpr explicit automatic(Candidates... of)
    requires(sizeof...(Candidates) > 0)
      : candidates{of...} {}
  constexpr automatic(exchange_rates given, Candidates... of)
    requires(sizeof...(Candidates) > 0)
      : rates{given}, candidates{of...} {}

  void validate() const {
    if (rates && !(rates->alpha >= 0 && rates->beta >= 0 && rates->gamma >= 0))
      throw error{errc::bad_argument, "automatic: a rate is negative, or no number; write seconds, 0 or more"};
    each([](auto, auto const& candidate) { candidate.validate(); });
  }

  /// Seconds that each candidate's exchange takes, in their order.
  template <class R, class I, class K>
  [[nodiscard]] std::array<double, sizeof...(Candidates)> predict(K const& codec, exchange_shape const& s,
                                                                  exchange_rates const& at) const {
    std::array<double, sizeof...(Candidates)> seconds{};
    each([&](auto i, auto const& candidate) { seconds[i] = at.seconds(candidate.template cost<R, I>(codec, s)); });
    return seconds;
  }

  /// Those of all candidates: their fields are few.
  template <class R>
  struct state {
    state(exchange_shape const& s, automatic const& stage)
        : state{s, stage, std::index_sequence_for<Candidates...>{}} {}
    template <class V>
    void visit(V& visitor) {
      std::apply([&](auto&... one) { (visitor(Candidates::name, one), ...); }, all);
    }
    [[nodiscard]] bool fits(exchange_shape const& s) const {
      return std::apply([&](auto const&... one) { return (detail::exchange_state_fits(one, s) && ...); }, all);
    }
    std::tuple<typename Candidates::template state<R>...> all;

   private:
    template <std::size_t... i>
    state(exchange_shape const& s, automatic const& stage, std::index_sequence<i...>)
        : all{detail::new_exchange_state<typename Candidates::template state<R>>(s, std::get<i>(stage.candidates))...} {
    }
  };

  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, automatic const& stage) : shape{s} {
      if (stage.rates || s.ranks == 1)
        stage.template choose<R, I>(b, codec, stage.rates.value_or(exchange_rates{}), *this);
    }
    [[nodiscard]] std::size_t result_capacity() const noexcept {
      auto const ranks = static_cast<std::size_t>(shape.ranks);
      return std::min(shape.n, (shape.capacity + ranks) * ranks);
    }

    exchange_shape shape;
    std::variant<std::monostate, typename Candidates::template workspace<B, R, I, K>...> of;
    std::string_view chosen;
    double seconds = 0;
  };

  /// Measures, agrees, and allocates the chosen exchange's memory; once, by the plan. Collective.
  template <class R, class I, class Channel, class K, class M>
  void settle(Channel& channel, K const& codec, M& memory) const {
    if (memory.of.index() != 0) return;
    exchange_rates const at = probe<R, I>(channel);
    std::array<std::uint64_t, 1> trouble{};
    try {
      choose<R, I>(channel.backend(), codec, at, memory);
    } catch (std::bad_alloc const&) {
      trouble[0] = 1;
    }
    std::vector<std::uint64_t> all(static_cast<std::size_t>(channel.ranks()));
    channel.share(trouble, std::span{all});
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r] != 0)
        throw error{
            errc::out_of_memory,
            detail::sentence("on rank ", r, ": automatic could not allocate the memory of the exchange it chose"),
            static_cast<int>(r)};
    }
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const& before, state<R>& after,
                                workspace<B, R, I, K>& memory) const {
    exchange_outcome<B, R, I> outcome{};
    each([&](auto i, auto const& candidate) {
      if (auto* const mine = std::get_if<i + 1>(&memory.of))
        outcome = candidate.run(channel, codec, selection, count, std::get<i>(before.all), std::get<i>(after.all),
                                *mine);
    });
    return outcome;
  }

  void describe(description& out) const {
    out.open(name);
    if (rates) {
      out("alpha", rates->alpha);
      out("beta", rates->beta);
      out("gamma", rates->gamma);
    }
    each([&](auto, auto const& candidate) { out("of", candidate); });
    out.close();
  }

 private:
  /// Calls f(i, candidate) for each, i a constant.
  template <class F>
  constexpr void each(F const& f) const {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (f(std::integral_constant<std::size_t, i>{}, std::get<i>(candidates)), ...);
    }(std::index_sequence_for<Candidates...>{});
  }

  template <class R, class I, class B, class K, class M>
  void choose(B& b, K const& codec, exchange_rates const& at, M& memory) const {
    auto const seconds = predict<R, I>(codec, memory.shape, at);
    auto const best = static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin());
    each([&](auto i, auto const& candidate) {
      if (i != best) return;
      memory.of.template emplace<i + 1>(b, codec, memory.shape, candidate);
      memory.chosen = candidate.name;
      memory.seconds = seconds[i];
    });
  }

  /// What a message, a byte and an entry take here: the median of some tries, of the slowest rank.
  template <class R, class I, class Channel>
  [[nodiscard]] static exchange_rates probe(Channel& channel) {
    using B = typename Channel::backend_type;
    constexpr int tries = 9;
    constexpr std::size_t bytes = std::size_t{1} << 18;
    constexpr std::size_t entries_each = 4096;
    B& b = channel.backend();
    int const ranks = channel.ranks();
    int const next = (channel.rank() + 1) % ranks;
    int const previous = (channel.rank() + ranks - 1) % ranks;

    auto const median_seconds = [&](auto const& work) {
      std::array<double, tries> each_try{};
      for (double& one : each_try) {
        auto const t0 = std::chrono::steady_clock::now();
        work();
        one = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
      }
      std::ranges::nth_element(each_try, each_try.begin() + tries / 2);
      return each_try[tries / 2];
    };
    double const alpha = median_seconds([&] { static_cast<void>(channel.pass(next, 1, previous)); });

    auto out = b.template allocate<std::byte>(bytes);
    auto in = b.template allocate<std::byte>(bytes);
    b.fill(out.view(), std::byte{1});
    double const message = median_seconds(
        [&] { channel.pass(next, const_bytes_in<B>{out.view()}, previous, in.view()); });

    // Two lists that interleave.
    entries<B, R, I> lists[3] = {{b, entries_each}, {b, entries_each}, {b, 2 * entries_each}};
    for (std::size_t j = 0; j < 2; ++j) {
      auto const list = lists[j].view();
      std::vector<I> indices(entries_each);
      for (std::size_t i = 0; i < entries_each; ++i) indices[i] = static_cast<I>(3 * i + j);
      b.write(std::span<I const>{indices}, list.indices);
      b.fill(list.values, R{1});
      b.fill(list.count, entries_each);
    }
    b.template reserve_lists<R, I>(2, 2 * entries_each);
    entries_view<B, R, I> const both[] = {lists[0].view(), lists[1].view()};
    double const merge = median_seconds([&] {
      b.merge_sum(std::span<entries_view<B, R, I> const>{both}, lists[2].view());
      b.wait();
    });

    std::array<std::uint64_t, 3> const mine{
        std::bit_cast<std::uint64_t>(alpha),
        std::bit_cast<std::uint64_t>(std::max(0.0, message - alpha) / static_cast<double>(bytes)),
        std::bit_cast<std::uint64_t>(merge / (2.0 * static_cast<double>(entries_each)))};
    std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(ranks));
    channel.share(mine, std::span{all});
    exchange_rates slowest;
    for (std::size_t r = 0; r < all.size(); r += mine.size()) {
      slowest.alpha = std::max(slowest.alpha, std::bit_cast<double>(all[r]));
      slowest.beta = std::max(slowest.beta, std::bit_cast<double>(all[r + 1]));
      slowest.gamma = std::max(slowest.gamma, std::bit_cast<double>(all[r + 2]));
    }
    return slowest;
  }
};

template <class... Candidates>
automatic(exchange_rates, Candidates...) -> automatic<Candidates...>;
automatic() -> automatic<gather_all, recursive_doubling, ok_topk, interleaved_quota>;
automatic(exchange_rates) -> automatic<gather_all, recursive_doubling, ok_topk, interleaved_quota>;

}  // namespace topsum

#endif
