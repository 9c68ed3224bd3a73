// SPDX-License-Identifier: BSL-1.0
/// \file
/// Agreement: every rank chooses in coordinates of its own.
#ifndef TOPSUM_EXCHANGE_AGREEMENT_OWNERS_HPP
#define TOPSUM_EXCHANGE_AGREEMENT_OWNERS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/interleaving.hpp>
#include <topsum/detail/agreement.hpp>
#include <topsum/detail/quota_lists.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Agreement: every rank chooses in coordinates that are its alone, so that nothing is chosen twice: the q largest of its selection
/// in blocks dealt out as `interleaved_quota` deals them, filled up at the smallest places. The support has k to k + P entries.
///
/// Words sent: the q indices of a rank in a ring, q (P-1) log2(n/P) / 32 or fewer with a codec for indices; sizes are known with the
/// plan. Latency log P to P. Source: MiCRO (Yoon & Oh, HiPC'23) and ExDyna, whose thresholds are replaced by exact counts.
struct owners {
  using stage_tag = agreement_tag;
  static constexpr std::string_view name = "owners";

  void validate() const noexcept {}

  /// Entries that a support may have, for a shape.
  [[nodiscard]] static std::size_t support_at_most(exchange_shape const& s) noexcept {
    return std::min(s.n, s.capacity + static_cast<std::size_t>(s.ranks));
  }

  template <class R>
  using state = detail::no_agreement_state;

  template <class B, class R, class I, class K>
  struct workspace {
    using index = I;
    using view = entries_view<B, R, I>;
    workspace(B& b, K const& codec, exchange_shape const& s, owners const&)
        : shape{s},
          where{s.n, static_cast<std::size_t>(s.ranks),
                std::clamp<std::size_t>(s.n / (8 * static_cast<std::size_t>(s.ranks)), 1, 32)} {
      auto const indices = detail::index_codec_of(codec);
      std::size_t total = 0;
      std::size_t bytes = 0;
      for (std::size_t r = 0; r < where.owners; ++r) {
        extents.push_back(where.size_of(r));
        counts.push_back(detail::quota_share(s.capacity, extents[r], s.n));
        sizes.push_back(indices.bytes(counts[r], extents[r]));
        total += counts[r];
        bytes += sizes[r];
      }
      auto const me = static_cast<std::size_t>(s.rank);
      dealt = entries<B, R, I>{b, s.capacity};
      part = entries<B, R, I>{b, counts[me]};
      gathered = entries<B, R, I>{b, total};
      b.fill(gathered.view().values, R{0});
      ends = b.template allocate<std::size_t>(where.owners);
      slots = b.template allocate<std::size_t>(where.owners + 1);
      out = b.template allocate<std::byte>(sizes[me]);
      in = b.template allocate<std::byte>(bytes);
      fault = b.template allocate<std::uint32_t>(1);
      b.fill(fault.view(), std::uint32_t{0});
      b.template reserve_lists<R, I>(where.owners, std::max(total, s.capacity));
      host_ends.resize(where.owners);
      merging.reserve(where.owners);
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return gathered.capacity(); }
    [[nodiscard]] view stretch(B& b, view const& list, std::size_t first, std::size_t size, std::size_t slot) {
      view const stretched{list.indices.subspan(first, size), list.values.subspan(first, size),
                           slots.view().subspan(slot, 1)};
      b.fill(stretched.count, size);
      return stretched;
    }

    exchange_shape shape;
    interleaving where;
    std::vector<std::size_t> extents, counts, sizes, host_ends;  // of each owner
    entries<B, R, I> dealt, part, gathered;
    typename B::template buffer<std::size_t> ends, slots;
    typename B::template buffer<std::byte> out, in;
    typename B::template buffer<std::uint32_t> fault;
    std::vector<view> merging;
  };

  /// As `leader::agree`.
  template <class Channel, class K, class View, class S, class M>
  std::size_t agree(Channel& channel, K const& codec, View selection, std::size_t /*count*/, S const&, S&, M& memory,
                    View support) const {
    using B = typename Channel::backend_type;
    using I = typename M::index;
    auto& backend = channel.backend();
    auto const indices = detail::index_codec_of(codec);
    auto const me = static_cast<std::size_t>(memory.shape.rank);
    channel.open();
    backend.deal(selection, memory.where, memory.dealt.view(), memory.ends.view());
    backend.read(memory.ends.view(), std::span<std::size_t>{memory.host_ends});
    std::size_t const begin = me == 0 ? 0 : memory.host_ends[me - 1];
    auto const mine = memory.part.view();
    backend.top_of(
        memory.stretch(backend, memory.dealt.view(), begin, memory.host_ends[me] - begin, memory.where.owners),
        memory.counts[me], mine);
    backend.pad(mine, memory.counts[me]);
    if (memory.sizes[me] != 0)
      indices.template encode<B, I>(backend, typename B::template span<I const>{mine.indices}, 0, memory.extents[me],
                                    memory.out.view());
    channel.all_gather_v(memory.out.view(), memory.in.view(), memory.sizes);
    memory.merging.clear();
    std::size_t at = 0;
    std::size_t entry = 0;
    for (std::size_t r = 0; r < memory.counts.size(); ++r) {
      auto const part = memory.stretch(backend, memory.gathered.view(), entry, memory.counts[r], r);
      if (memory.counts[r] != 0)
        indices.template decode<B, I>(backend, const_bytes_in<B>{memory.in.view().subspan(at, memory.sizes[r])}, 0,
                                      memory.extents[r], part.indices);
      backend.check(part, 0, memory.extents[r], memory.fault.view());
      backend.positions(part, memory.where, r);
      memory.merging.push_back(part);
      at += memory.sizes[r];
      entry += memory.counts[r];
    }
    if (backend.read(memory.fault.view()) != 0)
      throw error{errc::corrupt_message, "aligned: a rank's places do not increase below its coordinates' number"};
    backend.merge_sum(std::span<View const>{memory.merging}, support);
    return entry;
  }
};

}  // namespace topsum

#endif
