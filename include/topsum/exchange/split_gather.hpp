// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: entries to the owners of equal regions, and every region's sums to all.
#ifndef TOPSUM_EXCHANGE_SPLIT_GATHER_HPP
#define TOPSUM_EXCHANGE_SPLIT_GATHER_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/codec/switching.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/exchange/cost.hpp>

namespace topsum {

/// Exchange: region r of [0, n), an equal part, belongs to rank r, which sums all entries in it and gives the sums to all ranks.
///
/// SparCML's DSAR (Renggli et al., SC'19, section 5.3; TopkDSA in Ok-Topk's paper). A message, and an owner's sums, travel as a bitmap with
/// values where that is smaller (`switching`).
/// Words sent by a rank (raw codec, 32-bit types): at most 2k in the split; its region's sums P - 1 times in the gather, counted as
/// a ring: 4k(P-1)/P where selections are the same and spread evenly, up to (2k + n)(P-1)/P + n/32 where nothing coincides; + 12 a
/// peer for headers, 2(P-1) for counts. What an owner receives, and sums, grows with how its region is filled: up to 2k(P-1).
/// Latency 2P. Memory: O(kP). Every selected entry is applied, so a scope keeps its promise. Deterministic: an owner sums its own
/// entries first, then rank-1, rank-2, ... cyclically.
/// Prefer it to `gather_all` where selections overlap and P is large, to `recursive_doubling` for large messages.
struct split_gather {
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "split_gather";
  static constexpr exchange_kind kind = exchange_kind::union_of;

  void validate() const noexcept {}

  /// Nothing is kept between steps.
  template <class R>
  struct state {
    explicit state(exchange_shape const&) {}
  };

  template <class B, class R, class I, class K>
  struct workspace {
    using value = R;
    using index = I;
    using view = entries_view<B, R, I>;
    workspace(B& b, K const& of_messages, exchange_shape const& s, split_gather const&) : shape{s} {
      switching<K> const codec{of_messages};
      auto const ranks = static_cast<std::size_t>(s.ranks);
      std::size_t const others = s.capacity * (ranks - 1);
      std::size_t const mine = region(static_cast<std::size_t>(s.rank) + 1) - region(static_cast<std::size_t>(s.rank));
      std::size_t const sums_at_most = std::min(mine, s.capacity * ranks);
      std::size_t const result_at_most = std::min(s.n, s.capacity * ranks);
      out = b.template allocate<std::byte>(std::max(codec.template bytes_at_most<R, I>(s.capacity, ranks, s.n),
                                                    codec.template bytes_at_most<R, I>(sums_at_most, 1, mine)));
      in = b.template allocate<std::byte>(std::max(codec.template bytes_at_most<R, I>(others, ranks, mine),
                                                   codec.template bytes_at_most<R, I>(result_at_most, ranks, s.n)));
      bounds = b.template allocate<std::uint64_t>(ranks + 1);
      offsets = b.template allocate<std::size_t>(ranks + 1);
      counts = b.template allocate<std::size_t>(ranks);
      fault = b.template allocate<std::uint32_t>(1);
      b.fill(fault.view(), std::uint32_t{0});
      for (std::size_t r = 0; r <= ranks; ++r) first.push_back(region(r));
      b.write(std::span<std::uint64_t const>{first}, bounds.view());
      for (std::size_t r = 0; r < ranks; ++r)
        arrived.emplace_back(b, static_cast<int>(r) == s.rank ? 0 : std::min(s.capacity, mine));
      sums = entries<B, R, I>{b, sums_at_most};
      result = entries<B, R, I>{b, result_at_most};
      decoded = entries<B, R, I>{b, K::lossless ? 0 : sums_at_most};
      lost = entries<B, R, I>{b, K::lossless ? 0 : sums_at_most};
      b.template reserve_lists<R, I>(std::max<std::size_t>(ranks, 2), std::max<std::size_t>(sums_at_most, 1));
      for (auto* numbers : {&out_counts, &in_counts, &sum_counts, &sizes}) numbers->resize(ranks);
      host_offsets.resize(ranks + 1);
      shared.resize(ranks);
      messages.resize(ranks);
      sends.reserve(ranks);
      receives.reserve(ranks);
      merging.reserve(ranks);
    }

    /// Where region r begins.
    [[nodiscard]] std::size_t region(std::size_t r) const noexcept {
      auto const ranks = static_cast<std::size_t>(shape.ranks);
      return r * (shape.n / ranks) + std::min(r, shape.n % ranks);
    }
    [[nodiscard]] std::size_t extent(std::size_t r) const noexcept { return first[r + 1] - first[r]; }
    /// Entries [from, from + size) of a list; its count has place r.
    view stretch(B& b, view const& list, std::size_t from, std::size_t size, std::size_t r) {
      view const part{list.indices.subspan(from, size), list.values.subspan(from, size), counts.view().subspan(r, 1)};
      b.fill(part.count, size);
      return part;
    }

    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    exchange_shape shape;
    std::vector<std::uint64_t> first;  ///< of each region
    typename B::template buffer<std::byte> out, in;
    typename B::template buffer<std::uint64_t> bounds;
    typename B::template buffer<std::size_t> offsets, counts;
    typename B::template buffer<std::uint32_t> fault;
    std::vector<entries<B, R, I>> arrived;
    entries<B, R, I> sums, result, decoded, lost;
    std::vector<std::size_t> out_counts, in_counts, sum_counts, sizes, host_offsets;
    std::vector<std::uint64_t> shared;
    std::vector<bytes_in<B>> messages;
    std::vector<transfer<const_bytes_in<B>>> sends;
    std::vector<transfer<bytes_in<B>>> receives;
    std::vector<view> merging;
  };

  /// See `exchange_cost`.
  template <class R, class I, class K>
  [[nodiscard]] exchange_cost cost(K const& codec, exchange_shape const& s) const {
    switching<K> const messages{codec};
    double const peers = s.ranks - 1;
    std::size_t const extent = detail::ceil_div(s.n, s.ranks);
    std::size_t const sums = detail::expected_union(s.capacity, s.n, s.ranks);
    auto const bytes = [&](std::size_t entries) {
      return static_cast<double>(messages.template bytes<R, I>(detail::ceil_div(entries, s.ranks), 0, extent));
    };
    return {3 * peers, peers * (bytes(s.capacity) + bytes(sums)), static_cast<double>(s.capacity + sums)};
  }

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& of_messages, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const&, state<R>&, workspace<B, R, I, K>& memory) const {
    switching<K> const codec{of_messages};
    reduce_scatter(channel, codec, selection, memory);
    all_gather(channel, codec, memory);
    exchange_outcome<B, R, I> outcome{memory.result.view(), selection, count, {}};
    if constexpr (!K::lossless) outcome.returned = memory.lost.view();
    return outcome;
  }

  /// The first half: every region's entries to its owner, and the sums of this rank's region to `memory.sums`. Opens the step. With a
  /// lossy codec the selection's values become those that owners read.
  template <class Channel, class K, class View, class M>
  void reduce_scatter(Channel& channel, K const& codec, View selection, M& memory) const {
    using B = typename Channel::backend_type;
    using R = typename M::value;
    using I = typename M::index;
    B& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    std::size_t const ranks = memory.sizes.size();
    backend.lower_bounds(selection, typename B::template span<std::uint64_t const>{memory.bounds.view()},
                         memory.offsets.view());
    backend.read(memory.offsets.view(), std::span<std::size_t>{memory.host_offsets});
    for (std::size_t r = 0; r < ranks; ++r) memory.out_counts[r] = memory.host_offsets[r + 1] - memory.host_offsets[r];
    channel.open(memory.out_counts, memory.in_counts);
    memory.sends.clear();
    memory.receives.clear();
    std::size_t out_at = 0;
    std::size_t in_at = 0;
    for (std::size_t s = 1; s < ranks; ++s) {
      std::size_t const to = (me + s) % ranks;
      std::size_t const from = (me + ranks - s) % ranks;
      if (memory.in_counts[from] > memory.arrived[from].capacity())
        throw error{errc::corrupt_message,
                    detail::sentence("split_gather: rank ", from, " announced more entries than may travel"),
                    static_cast<int>(from)};
      auto const message = memory.out.view().subspan(
          out_at, codec.template bytes<R, I>(memory.out_counts[to], memory.first[to], memory.extent(to)));
      codec.encode(backend, run_of(selection, memory.host_offsets[to], memory.out_counts[to]), memory.first[to],
                   memory.extent(to), message);
      if constexpr (!K::lossless)  // what the owner will read is what leaves the residual
        codec.decode(backend, const_bytes_in<B>{message}, memory.out_counts[to], memory.first[to], memory.extent(to),
                     memory.stretch(backend, selection, memory.host_offsets[to], memory.out_counts[to], to),
                     memory.fault.view());
      out_at += message.size();
      memory.messages[from] = memory.in.view().subspan(
          in_at, codec.template bytes<R, I>(memory.in_counts[from], memory.first[me], memory.extent(me)));
      in_at += memory.messages[from].size();
      if (message.size() != 0) memory.sends.push_back({static_cast<int>(to), const_bytes_in<B>{message}});
      if (memory.messages[from].size() != 0) memory.receives.push_back({static_cast<int>(from), memory.messages[from]});
    }
    auto group = channel.start(std::span<transfer<const_bytes_in<B>> const>{memory.sends},
                               std::span<transfer<bytes_in<B>> const>{memory.receives});
    channel.finish(group);
    memory.merging.clear();
    memory.merging.push_back(memory.stretch(backend, selection, memory.host_offsets[me], memory.out_counts[me], me));
    for (std::size_t s = 1; s < ranks; ++s) {
      std::size_t const from = (me + ranks - s) % ranks;
      codec.decode(backend, const_bytes_in<B>{memory.messages[from]}, memory.in_counts[from], memory.first[me],
                   memory.extent(me), memory.arrived[from].view(), memory.fault.view());
      memory.merging.push_back(memory.arrived[from].view());
    }
    expect_sound(backend, memory);
    backend.merge_sum(std::span<View const>{memory.merging}, memory.sums.view());
  }

  /// The second half: `memory.sums` of every rank to all, one region behind the other, in `memory.result`; what coding them lost in
  /// `memory.lost`.
  template <class Channel, class K, class M>
  void all_gather(Channel& channel, K const& codec, M& memory) const {
    using B = typename Channel::backend_type;
    using view = typename M::view;
    using R = typename M::value;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    std::array<std::uint64_t, 1> const mine{backend.read(memory.sums.view().count)};
    channel.share(mine, std::span<std::uint64_t>{memory.shared});
    std::size_t bytes = 0;
    std::size_t room = memory.result.capacity();
    for (std::size_t r = 0; r < memory.sizes.size(); ++r) {
      memory.sum_counts[r] = static_cast<std::size_t>(memory.shared[r]);
      if (memory.sum_counts[r] > std::min(memory.extent(r), room))
        throw error{errc::corrupt_message,
                    detail::sentence("split_gather: rank ", r,
                                     " announced more sums than its region, or all selections, can have"),
                    static_cast<int>(r)};
      room -= memory.sum_counts[r];
      memory.sizes[r] = codec.template bytes<R, I>(memory.sum_counts[r], memory.first[r], memory.extent(r));
      bytes += memory.sizes[r];
    }
    auto const message = memory.out.view().subspan(0, memory.sizes[me]);
    codec.encode(backend, run_of(memory.sums.view(), 0, memory.sum_counts[me]), memory.first[me], memory.extent(me),
                 message);
    if constexpr (!K::lossless) {  // what is lost here stays here
      codec.decode(backend, const_bytes_in<B>{message}, memory.sum_counts[me], memory.first[me], memory.extent(me),
                   memory.decoded.view(), memory.fault.view());
      backend.divide(memory.decoded.view(), -1);
      view const both[] = {memory.sums.view(), memory.decoded.view()};
      backend.merge_sum(std::span<view const>{both}, memory.lost.view());
    }
    auto const all = memory.in.view().subspan(0, bytes);
    channel.all_gather_v(const_bytes_in<B>{message}, all, memory.sizes);
    std::size_t at = 0;
    std::size_t entry = 0;
    for (std::size_t r = 0; r < memory.sizes.size(); ++r) {
      codec.decode(backend, const_bytes_in<B>{all.subspan(at, memory.sizes[r])}, memory.sum_counts[r], memory.first[r],
                   memory.extent(r), memory.stretch(backend, memory.result.view(), entry, memory.sum_counts[r], r),
                   memory.fault.view());
      at += memory.sizes[r];
      entry += memory.sum_counts[r];
    }
    backend.fill(memory.result.view().count, entry);
    expect_sound(backend, memory);
  }

 private:
  template <class B, class M>
  static void expect_sound(B& backend, M& memory) {
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "split_gather: a rank's indices do not increase within a region"};
  }
};

}  // namespace topsum

#endif
