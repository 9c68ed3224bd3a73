// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: Ok-Topk, the O(k) sparse allreduce.
#ifndef TOPSUM_EXCHANGE_OK_TOPK_HPP
#define TOPSUM_EXCHANGE_OK_TOPK_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <topsum/codec/raw.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>
#include <topsum/exchange/ok_topk_memory.hpp>

namespace topsum {

/// Exchange: the k largest sums of all ranks' selections, with O(k) words a rank however many ranks there are.
///
/// Source: Ok-Topk (Li & Hoefler, PPoPP'22, sections 3.1.1 to 3.1.3). One step:
/// 1. every `boundaries_every` steps (and on a new number of ranks), consensus on regions that cut the ranks' selections evenly;
/// 2. split and reduce: each rank owns a region and sums the entries that all ranks have in it. Destinations rotate, `bucket`
///    messages are in flight while the bucket before is being reduced;
/// 3. the owners keep the sums whose magnitude reaches the global k-th, found exactly every `threshold_every` steps (and
///    whenever more than k would pass), reused between;
/// 4. balance: when an owner holds more than `balance_above` times the mean, entries move so that each holds its share;
/// 5. allgatherv. What is applied of a rank's entries: those whose index is in the result.
///
/// Words sent by a rank (raw codec, 32-bit types): at most 6k + 124 on every input, for headers and counts at most 24 a peer
/// more (30 at a boundary step that is no refresh); at most 6k(P-1)/P on average where supports are spread. It receives at
/// most (2 region_capacity + 4)k: what a rank has for one owner is cut by magnitude to region_capacity k/P entries (at least
/// 64), the rest stays in its residual; at P <= 4 nothing is ever cut. Latency: 2P + 2 log P, at a refresh 3 to 31 small allreduces more.
/// Memory: O(k) + O(P). Deterministic: the owner sums its own entries first, then rank-1, rank-2, ... cyclically.
/// Prefer `gather_all` at P = 2, `dense` above a density of about 1/3.
struct ok_topk {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "ok_topk";
  static constexpr exchange_kind kind = exchange_kind::reselecting;

  std::uint64_t boundaries_every = 64;  ///< steps from one consensus on the regions to the next (tau)
  std::uint64_t threshold_every = 32;   ///< steps from one exact global threshold to the next (tau')
  int bucket = 4;                       ///< messages in flight
  double balance_above = 4;             ///< largest owner over mean owner, above which entries are moved; at least 1
  double region_capacity = 4;           ///< entries of one message over k/P; P or more never cuts, at O(kP) memory

  void validate() const {
    auto const refuse = [](std::string const& what) {
      throw error{errc::bad_argument, detail::sentence("ok_topk: ", what)};
    };
    if (boundaries_every == 0) refuse(".boundaries_every = 0; write at least 1");
    if (threshold_every == 0) refuse(".threshold_every = 0; write at least 1 (1 is exact on every step)");
    if (bucket < 1) refuse(detail::sentence(".bucket = ", bucket, "; write at least 1"));
    if (!(balance_above >= 1)) refuse(detail::sentence(".balance_above = ", balance_above, "; write at least 1"));
    if (!(region_capacity >= 1)) refuse(detail::sentence(".region_capacity = ", region_capacity, "; write at least 1"));
  }

  /// Kept between steps: where regions begin, and the magnitude that the last exact global threshold had.
  template <class R>
  struct state {
    explicit state(exchange_shape const& s) : bounds(static_cast<std::size_t>(s.ranks) + 1, 0) {}
    template <class V>
    void visit(V& visitor) {
      visitor("bounds", bounds);
      visitor("threshold", threshold);
    }
    /// Whether loaded regions cover [0, n) in order, or wait to be placed.
    [[nodiscard]] bool fits(exchange_shape const& s) const {
      return std::ranges::is_sorted(bounds) && bounds.front() == 0 && (bounds.back() == s.n || bounds.back() == 0);
    }
    std::vector<std::uint64_t> bounds;  ///< region r is [bounds[r], bounds[r + 1])
    bits_t<R> threshold = 0;
  };

  template <class B, class R, class I, class K>
  using workspace = detail::ok_topk_memory<B, R, I, K>;

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    double const peers = s.ranks - 1;
    auto const bytes = static_cast<double>(
        codec.template bytes<R, I>(detail::ceil_div(s.capacity, s.ranks), 0, detail::ceil_div(s.n, s.ranks)));
    // Entries, counts, the gather; and of a refresh, an allreduce of a few words on most steps' average.
    double const refresh = 2 * peers * std::min(1.0, 8.0 / static_cast<double>(threshold_every));
    return {3 * peers + refresh, 2 * peers * bytes, 2 * static_cast<double>(s.capacity)};
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const& before, state<R>& after,
                                workspace<B, R, I, K>& memory) const {
    after = before;
    bool const place = channel.step() % boundaries_every == 0 || before.bounds.back() != memory.shape.n;
    if (place) {
      channel.open();
      place_regions(channel, selection, after, memory);
    }
    auto const sent = split(channel.backend(), selection, count, after, memory);
    if (place) {
      channel.trade(memory.out_counts, memory.in_counts);
    } else {
      channel.open(memory.out_counts, memory.in_counts);
    }
    auto const reduced = reduce(channel, codec, sent, after, memory);
    keep_largest(channel, reduced, channel.step() % threshold_every == 0, after, memory);
    bool const moved = balance(channel, codec, memory);
    gather(channel, codec, moved, after, memory);
    channel.backend().intersect(sent, memory.result.view(), memory.applied.view());
    exchange_outcome<B, R, I> outcome{memory.result.view(), memory.applied.view(), memory.sent_count, {}};
    if constexpr (!K::lossless) outcome.returned = memory.lost.view();
    return outcome;
  }

  void describe(description& out) const {
    out.open(name);
    out("boundaries_every", boundaries_every);
    out("threshold_every", threshold_every);
    out("bucket", bucket);
    out("balance_above", balance_above);
    out("region_capacity", region_capacity);
    out.close();
  }

 private:
  /// Boundary i is the mean over ranks of the index at which rank r's selection has i of P equal parts behind it.
  template <class Channel, class View, class R, class M>
  void place_regions(Channel& channel, View selection, state<R>& after, M& memory) const {
    auto& backend = channel.backend();
    std::size_t const ranks = after.bounds.size() - 1;
    std::span<std::uint64_t> const inner{after.bounds.data() + 1, ranks - 1};
    backend.cuts(selection, ranks, memory.shape.n, memory.cuts.view());
    backend.read(memory.cuts.view(), inner);
    channel.sum_control(inner, std::span<std::uint64_t>{memory.scratch_words});
    for (std::uint64_t& bound : inner) bound /= ranks;
    after.bounds.front() = 0;
    after.bounds.back() = memory.shape.n;
  }

  /// Cuts the selection at the boundaries and to the capacity of a message; the list that is sent.
  template <class B, class View, class R, class M>
  View split(B& backend, View selection, std::size_t count, state<R> const& after, M& memory) const {
    std::size_t const ranks = after.bounds.size() - 1;
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    backend.write(std::span<std::uint64_t const>{after.bounds}, memory.bounds.view());
    backend.lower_bounds(selection, memory.bounds.view(), memory.offsets.view());
    backend.read(memory.offsets.view(), std::span{memory.first});
    bool fits = true;
    for (std::size_t r = 0; r < ranks; ++r) {
      memory.out_counts[r] = memory.first[r + 1] - memory.first[r];
      fits = fits && (r == me || memory.out_counts[r] <= memory.message_capacity);
    }
    memory.sent_count = count;
    if (fits) return selection;

    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::size_t const keep = r == me ? memory.out_counts[r] : std::min(memory.out_counts[r], memory.message_capacity);
      backend.top_of(memory.stretch(backend, selection, memory.first[r], memory.out_counts[r], 0), keep,
                     memory.stretch(backend, memory.sent.view(), at, keep, 1));
      memory.first[r] = at;
      memory.out_counts[r] = keep;
      at += keep;
    }
    memory.first[ranks] = at;
    memory.sent_count = at;
    backend.fill(memory.sent.view().count, at);
    return memory.sent.view();
  }

  /// Sends each region's entries to its owner and sums what arrives for this one. Returns the sums.
  template <class Channel, class K, class View, class R, class M>
  View reduce(Channel& channel, K const& codec, View sent, state<R> const& after, M& memory) const {
    using B = typename Channel::backend_type;
    auto& backend = channel.backend();
    int const ranks = memory.shape.ranks;
    int const me = memory.shape.rank;
    auto const mine = static_cast<std::size_t>(me);
    for (int r = 0; r < ranks; ++r) {
      std::size_t const limit = r == me ? memory.shape.capacity : memory.message_capacity;
      if (memory.in_counts[static_cast<std::size_t>(r)] > limit)
        throw error{errc::corrupt_message,
                    detail::sentence("ok_topk: rank ", r, " announced more entries than a message may hold"), r};
    }
    auto const size_for = [&](std::size_t entries_in, std::size_t region) {
      return codec.template bytes<R, typename M::index>(entries_in, after.bounds[region],
                                                        after.bounds[region + 1] - after.bounds[region]);
    };
    std::size_t at = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      if (r == mine) continue;
      std::size_t const size = size_for(memory.out_counts[r], r);
      memory.out_messages[r] = memory.out.view().subspan(at, size);
      std::size_t const extent = after.bounds[r + 1] - after.bounds[r];
      codec.encode(backend, run_of(sent, memory.first[r], memory.out_counts[r]), after.bounds[r], extent,
                   memory.out_messages[r]);
      if constexpr (!K::lossless)  // what its owner will read is what leaves the residual
        codec.decode(backend, memory.out_messages[r], memory.out_counts[r], after.bounds[r], extent,
                     memory.stretch(backend, sent, memory.first[r], memory.out_counts[r], 0), memory.fault.view());
      at += size;
    }

    // Bucket b holds the peers at distances [b * bucket + 1, ...]; its messages land in half b % 2 of `in`.
    int const together = static_cast<int>(memory.in_flight);
    auto const start_bucket = [&](int from) {
      memory.sends.clear();
      memory.receives.clear();
      std::size_t into = static_cast<std::size_t>(((from - 1) / together) % 2) * memory.half;
      for (int s = from; s < std::min(from + together, ranks); ++s) {
        int const to = (me + s) % ranks;
        int const source = (me - s + ranks) % ranks;
        std::size_t const size = size_for(memory.in_counts[static_cast<std::size_t>(source)], mine);
        memory.in_messages[static_cast<std::size_t>(source)] = memory.in.view().subspan(into, size);
        memory.sends.push_back({to, typename M::const_bytes{memory.out_messages[static_cast<std::size_t>(to)]}});
        memory.receives.push_back({source, memory.in_messages[static_cast<std::size_t>(source)]});
        into += size;
      }
      return channel.start(std::span<transfer<const_bytes_in<B>> const>{memory.sends},
                           std::span<transfer<bytes_in<B>> const>{memory.receives});
    };

    View reduced = memory.stretch(backend, sent, memory.first[mine], memory.out_counts[mine], 0);
    if (ranks == 1) return reduced;
    std::size_t into = 0;
    auto travelling = start_bucket(1);
    for (int from = 1; from < ranks; from += together) {
      channel.finish(travelling);
      if (from + together < ranks) travelling = start_bucket(from + together);
      memory.merging.assign(1, reduced);
      for (int s = from; s < std::min(from + together, ranks); ++s) {
        auto const source = static_cast<std::size_t>((me - s + ranks) % ranks);
        View const arrived = memory.incoming[static_cast<std::size_t>(s - from)].view();
        codec.decode(backend, typename M::const_bytes{memory.in_messages[source]}, memory.in_counts[source],
                     after.bounds[mine], after.bounds[mine + 1] - after.bounds[mine], arrived, memory.fault.view());
        memory.merging.push_back(arrived);
      }
      backend.merge_sum(std::span<View const>{memory.merging}, memory.reduced[into].view());
      reduced = memory.reduced[into].view();
      into = 1 - into;
    }
    return reduced;
  }

  /// Keeps, over all owners, the sums that reach the global threshold: never more than k of them.
  template <class Channel, class View, class R, class M>
  void keep_largest(Channel& channel, View reduced, bool refresh, state<R>& after, M& memory) const {
    auto& backend = channel.backend();
    std::size_t const k = memory.shape.capacity;
    if (refresh) after.threshold = exact_threshold<R>(channel, reduced, memory);
    std::size_t total = share_counts(channel, reduced, after.threshold, memory);
    if (total > k && !refresh) {
      after.threshold = exact_threshold<R>(channel, reduced, memory);
      total = share_counts(channel, reduced, after.threshold, memory);
    }
    // Entries above the exact threshold are fewer than k; those equal to it share what is left, in the order of the owners.
    std::size_t above = 0;
    for (std::size_t r = 0; r < memory.kept_counts.size(); ++r) {
      if (memory.shared[3 * r] > k - above)
        throw error{errc::corrupt_message, "ok_topk: ranks announced more than k sums above the global threshold"};
      above += static_cast<std::size_t>(memory.shared[3 * r]);
    }
    std::size_t left = k - above;
    std::size_t ties = 0;
    for (std::size_t r = 0; r < memory.kept_counts.size(); ++r) {
      std::size_t const equal = std::min(left, static_cast<std::size_t>(memory.shared[3 * r + 1]));
      left -= equal;
      memory.kept_counts[r] = static_cast<std::size_t>(memory.shared[3 * r]) + equal;
      if (r == static_cast<std::size_t>(memory.shape.rank)) ties = equal;
    }
    backend.keep_at_least(reduced, after.threshold, ties, memory.kept.view());
  }

  /// Every owner's counts above and equal to the threshold, and whether a message was corrupt. Returns their total.
  template <class Channel, class View, class Bits, class M>
  std::size_t share_counts(Channel& channel, View reduced, Bits threshold, M& memory) const {
    auto& backend = channel.backend();
    std::array<std::size_t, 2> counts{};
    backend.count_at_least(reduced, threshold, memory.two_counts.view());
    backend.read(memory.two_counts.view(), std::span<std::size_t>{counts});
    std::array<std::uint64_t, 3> const mine{counts[0], counts[1], backend.read(memory.fault.view())};
    channel.share(mine, std::span<std::uint64_t>{memory.shared});
    std::size_t total = 0;
    for (std::size_t r = 0; r < memory.kept_counts.size(); ++r) {
      if (memory.shared[3 * r + 2] != 0)
        throw error{errc::corrupt_message,
                    detail::sentence("ok_topk: rank ", r, " received indices that do not increase within its region"),
                    static_cast<int>(r)};
      total += static_cast<std::size_t>(memory.shared[3 * r] + memory.shared[3 * r + 1]);
    }
    return total;
  }

  /// The k-th largest magnitude of all owners' sums, exactly; 0 when there are at most k. Rounds of histogram allreduce, whose
  /// width is chosen so that all of them together send at most 4k/P + 124 words.
  template <class R, class Channel, class View, class M>
  bits_t<R> exact_threshold(Channel& channel, View reduced, M& memory) const {
    auto& backend = channel.backend();
    std::size_t remaining = memory.shape.capacity;
    bits_t<R> prefix = 0;
    for (int known = 0; known < magnitude_bits<R>;) {
      int const width = std::min(memory.histogram_width, magnitude_bits<R> - known);
      auto const bins = memory.bins.view().subspan(0, std::size_t{1} << width);
      auto const counts = std::span{memory.host_bins}.first(std::size_t{1} << width);
      backend.histogram(reduced, prefix, known, width, bins);
      backend.read(bins, counts);
      channel.sum(counts, std::span{memory.scratch_bins});
      std::size_t bin = counts.size();
      std::size_t seen = 0;
      while (bin > 0 && seen + counts[bin - 1] < remaining) seen += counts[--bin];
      if (bin == 0) return 0;  // in the first round only: at most k sums in all
      remaining -= seen;
      known += width;
      prefix |= static_cast<bits_t<R>>(bin - 1) << (magnitude_bits<R> - known);
    }
    return prefix;
  }

  /// Moves kept entries so that every rank holds an equal share of the whole, in order, if the largest owner is too large.
  template <class Channel, class K, class M>
  bool balance(Channel& channel, K const& of_messages, M& memory) const {
    using B = typename Channel::backend_type;
    using R = typename M::value;
    auto& backend = channel.backend();
    std::size_t const ranks = memory.kept_counts.size();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    std::size_t total = 0;
    for (std::size_t c : memory.kept_counts) total += c;
    std::size_t const largest = *std::ranges::max_element(memory.kept_counts);
    if (static_cast<double>(largest) * static_cast<double>(ranks) <= balance_above * static_cast<double>(total))
      return false;

    // Sums are rounded once, when they are gathered.
    auto const codec = [&] {
      if constexpr (K::lossless) {
        return of_messages;
      } else {
        return raw{};
      }
    }();
    auto const share = [&](std::size_t r) { return r * (total / ranks) + r * (total % ranks) / ranks; };
    std::size_t const n = memory.shape.n;
    memory.sends.clear();
    memory.receives.clear();
    std::size_t held_before = 0;  // entries of the owners before r
    std::size_t mine_before = 0;
    for (std::size_t r = 0; r < me; ++r) mine_before += memory.kept_counts[r];
    std::size_t out_at = 0;
    std::size_t in_at = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const [first, last] = overlap(mine_before, mine_before + memory.kept_counts[me], share(r), share(r + 1));
      std::size_t const out_size = codec.template bytes<R, typename M::index>(last - first, 0, n);
      auto const out = memory.out.view().subspan(out_at, out_size);
      codec.encode(backend, run_of(memory.kept.view(), first - std::min(first, mine_before), last - first), 0, n, out);
      auto const [from, to] = overlap(held_before, held_before + memory.kept_counts[r], share(me), share(me + 1));
      std::size_t const in_size = codec.template bytes<R, typename M::index>(to - from, 0, n);
      memory.moved_counts[r] = to - from;
      memory.in_messages[r] = memory.in.view().subspan(in_at, in_size);
      if (r != me) {
        memory.sends.push_back({static_cast<int>(r), typename M::const_bytes{out}});
        memory.receives.push_back({static_cast<int>(r), memory.in_messages[r]});
      } else {
        memory.in_messages[r] = out;
      }
      out_at += out_size;
      in_at += in_size;
      held_before += memory.kept_counts[r];
    }
    auto group = channel.start(std::span<transfer<const_bytes_in<B>> const>{memory.sends},
                               std::span<transfer<bytes_in<B>> const>{memory.receives});
    channel.finish(group);
    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      codec.decode(backend, typename M::const_bytes{memory.in_messages[r]}, memory.moved_counts[r], 0, n,
                   memory.stretch(backend, memory.balanced.view(), at, memory.moved_counts[r], 0), memory.fault.view());
      at += memory.moved_counts[r];
    }
    for (std::size_t r = 0; r < ranks; ++r) memory.kept_counts[r] = share(r + 1) - share(r);
    return true;
  }

  /// Every rank's kept (or balanced) entries, in order, on every rank.
  template <class Channel, class K, class R, class M>
  void gather(Channel& channel, K const& codec, bool moved, state<R> const& after, M& memory) const {
    auto& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    std::size_t const n = memory.shape.n;
    auto const first = [&](std::size_t r) { return moved ? 0 : static_cast<std::size_t>(after.bounds[r]); };
    auto const extent = [&](std::size_t r) {
      return moved ? n : static_cast<std::size_t>(after.bounds[r + 1] - after.bounds[r]);
    };
    std::size_t bytes = 0;
    for (std::size_t r = 0; r < memory.sizes.size(); ++r) {
      memory.sizes[r] = codec.template bytes<R, typename M::index>(memory.kept_counts[r], first(r), extent(r));
      bytes += memory.sizes[r];
    }
    auto const held = moved ? memory.balanced.view() : memory.kept.view();
    auto const mine = memory.out.view().subspan(0, memory.sizes[me]);
    codec.encode(backend, run_of(held, 0, memory.kept_counts[me]), first(me), extent(me), mine);
    if constexpr (!K::lossless) {  // what is lost here stays here
      auto const count = memory.kept_counts[me];
      auto const decoded = memory.stretch(backend, memory.decoded.view(), 0, count, 1);
      codec.decode(backend, mine, count, first(me), extent(me), decoded, memory.fault.view());
      backend.divide(decoded, -1);
      typename M::view const both[] = {memory.stretch(backend, held, 0, count, 0), decoded};
      backend.merge_sum(std::span<typename M::view const>{both}, memory.lost.view());
    }
    auto const all = memory.gathered.view().subspan(0, bytes);
    channel.all_gather_v(typename M::const_bytes{mine}, all, memory.sizes);
    std::size_t at = 0;
    std::size_t entry = 0;
    for (std::size_t r = 0; r < memory.sizes.size(); ++r) {
      codec.decode(backend, typename M::const_bytes{all.subspan(at, memory.sizes[r])}, memory.kept_counts[r], first(r),
                   extent(r), memory.stretch(backend, memory.result.view(), entry, memory.kept_counts[r], 0),
                   memory.fault.view());
      at += memory.sizes[r];
      entry += memory.kept_counts[r];
    }
    backend.fill(memory.result.view().count, entry);
    backend.check(memory.result.view(), 0, n, memory.fault.view());
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "ok_topk: gathered indices do not increase within [0, n)"};
  }

  /// The intersection of [a, b) and [c, d), empty as [a, a).
  static std::pair<std::size_t, std::size_t> overlap(std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
    std::size_t const first = std::max(a, c);
    std::size_t const last = std::min(b, d);
    return first < last ? std::pair{first, last} : std::pair{a, a};
  }
};

}  // namespace topsum

#endif
