// SPDX-License-Identifier: BSL-1.0
/// \file
/// The memory of `ok_topk`, all of it allocated with the plan.
#ifndef TOPSUM_EXCHANGE_OK_TOPK_MEMORY_HPP
#define TOPSUM_EXCHANGE_OK_TOPK_MEMORY_HPP

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <topsum/exchange/channel.hpp>

namespace topsum::detail {

/// O(k) + O(P) beside the selection: see the sizes in the constructor.
template <class B, class R, class I, class K>
struct ok_topk_memory {
  using value = R;
  using index = I;
  using view = entries_view<B, R, I>;
  using bytes = bytes_in<B>;
  using const_bytes = const_bytes_in<B>;
  template <class V>
  using buffer = typename B::template buffer<V>;

  template <class Stage>
  ok_topk_memory(B& b, K const& codec, exchange_shape const& s, Stage const& stage)
      : shape{s},
        message_capacity{capacity_of_message(s, stage.region_capacity)},
        in_flight{static_cast<std::size_t>(std::min(stage.bucket, std::max(1, s.ranks - 1)))},
        histogram_width{width_of_histogram(s)},
        half{codec.template bytes_at_most<R, I>(message_capacity * in_flight, in_flight, s.n)} {
    auto const ranks = static_cast<std::size_t>(s.ranks);
    std::size_t const k = s.capacity;
    std::size_t k_bytes = codec.template bytes_at_most<R, I>(k, ranks, s.n);
    if (!K::lossless) k_bytes = std::max(k_bytes, k * (sizeof(R) + sizeof(I)));  // entries that move travel as they are
    std::size_t const sums = ranks == 1 ? 0 : std::min(s.n, k + (ranks - 1) * message_capacity);

    out = b.template allocate<std::byte>(k_bytes);
    in = b.template allocate<std::byte>(std::max(2 * half, k_bytes));
    gathered = b.template allocate<std::byte>(k_bytes);
    cuts = b.template allocate<std::uint64_t>(ranks - 1);
    bounds = b.template allocate<std::uint64_t>(ranks + 1);
    offsets = b.template allocate<std::size_t>(ranks + 1);
    bins = b.template allocate<I>(std::size_t{1} << histogram_width);
    two_counts = b.template allocate<std::size_t>(2);
    slots = b.template allocate<std::size_t>(2);
    fault = b.template allocate<std::uint32_t>(1);
    b.fill(fault.view(), std::uint32_t{0});

    // With P <= region_capacity no message is ever cut, and the list of what was sent is the selection itself.
    sent = entries<B, R, I>{b, message_capacity < k ? k : 0};
    for (std::size_t i = 0; i < (ranks == 1 ? 0 : in_flight); ++i) incoming.emplace_back(b, message_capacity);
    reduced[0] = entries<B, R, I>{b, sums};
    reduced[1] = entries<B, R, I>{b, ranks - 1 > in_flight ? sums : 0};
    kept = entries<B, R, I>{b, k};
    balanced = entries<B, R, I>{b, k / ranks + 1};
    result = entries<B, R, I>{b, k};
    applied = entries<B, R, I>{b, k};
    decoded = entries<B, R, I>{b, K::lossless ? 0 : k};
    lost = entries<B, R, I>{b, K::lossless ? 0 : k};
    b.template reserve_lists<R, I>(in_flight + 1, k);

    out_counts.resize(ranks);
    in_counts.resize(ranks);
    kept_counts.resize(ranks);
    moved_counts.resize(ranks);
    sizes.resize(ranks);
    first.resize(ranks + 1);
    shared.resize(3 * ranks);
    host_bins.resize(bins.size());
    scratch_bins.resize(bins.size() / ranks + 1);
    scratch_words.resize(1);
    out_messages.resize(ranks);
    in_messages.resize(ranks);
    sends.reserve(ranks);
    receives.reserve(ranks);
    merging.reserve(in_flight + 1);
  }

  /// Entries [from, from + size) of a list, as a list whose count lies in `slot` (0 or 1) until the slot's next use.
  view stretch(B& b, view const& list, std::size_t from, std::size_t size, std::size_t slot) {
    view const part{list.indices.subspan(from, size), list.values.subspan(from, size), slots.view().subspan(slot, 1)};
    b.fill(part.count, size);
    return part;
  }

  [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

  exchange_shape shape;
  std::size_t message_capacity;  ///< entries of a message to an owner
  std::size_t in_flight;         ///< messages of a bucket
  int histogram_width;           ///< bits of a magnitude that one round of the global threshold finds
  std::size_t half;  ///< bytes of a bucket's messages; `in` holds two, one being reduced while the other fills
  std::size_t sent_count = 0;

  buffer<std::byte> out, in, gathered;
  buffer<std::uint64_t> cuts, bounds;
  buffer<std::size_t> offsets, two_counts, slots;
  buffer<I> bins;
  buffer<std::uint32_t> fault;
  entries<B, R, I> sent, kept, balanced, result, applied, decoded, lost;
  entries<B, R, I> reduced[2];
  std::vector<entries<B, R, I>> incoming;

  std::vector<std::size_t> out_counts, in_counts, kept_counts, moved_counts, sizes, first;
  std::vector<std::uint64_t> shared, scratch_words;
  std::vector<I> host_bins, scratch_bins;
  std::vector<bytes> out_messages, in_messages;
  std::vector<transfer<const_bytes>> sends;
  std::vector<transfer<bytes>> receives;
  std::vector<view> merging;

 private:
  static constexpr std::size_t smallest_message_capacity = 64;

  static std::size_t capacity_of_message(exchange_shape const& s, double region_capacity) {
    if (s.capacity == 0) return 0;
    double const share = std::ceil(region_capacity * static_cast<double>(s.capacity) / s.ranks);
    if (share >= static_cast<double>(s.capacity)) return s.capacity;
    return std::min(s.capacity, std::max(smallest_message_capacity, static_cast<std::size_t>(share)));
  }
  /// floor(log2(k / 8P)) within [1, 11]: all rounds together then send at most 4k/P + 124 words.
  static int width_of_histogram(exchange_shape const& s) {
    return std::clamp(static_cast<int>(std::bit_width(s.capacity / (8 * static_cast<std::size_t>(s.ranks)))) - 1, 1,
                      11);
  }
};

}  // namespace topsum::detail

#endif
