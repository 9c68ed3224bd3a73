// SPDX-License-Identifier: BSL-1.0
/// \file
/// What exchanges by quota share: the selection dealt to owners, a fixed number of entries each, and the owners' sums put together.
#ifndef TOPSUM_DETAIL_QUOTA_LISTS_HPP
#define TOPSUM_DETAIL_QUOTA_LISTS_HPP

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/core/interleaving.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum::detail {

/// ceil(k m / n) for k, m <= n < 2^63, by doubling: no product overflows. 0 for n = 0.
[[nodiscard]] constexpr std::size_t quota_share(std::size_t k, std::size_t m, std::size_t n) noexcept {
  std::size_t quotient = 0;
  std::size_t rest = 0;
  for (int bit = static_cast<int>(std::bit_width(m)); n != 0 && bit-- > 0;) {
    rest *= 2;
    quotient = 2 * quotient + (rest >= n ? 1 : 0);
    rest -= rest >= n ? n : 0;
    rest += (m >> bit & 1) != 0 ? k : 0;
    quotient += rest >= n ? 1 : 0;
    rest -= rest >= n ? n : 0;
  }
  return quotient + (rest != 0 ? 1 : 0);
}

/// Lists by owner, of sizes that are known when the plan is made. O(k) entries.
template <class B, class R, class I>
struct quota_lists {
  using value = R;
  using index = I;
  using view = entries_view<B, R, I>;

  quota_lists(B& b, exchange_shape const& s, quotas const& of_owners, bool lossless)
      : shape{s},
        wanted{of_owners},
        fault{b.template allocate<std::uint32_t>(1)},
        ends{b.template allocate<std::size_t>(static_cast<std::size_t>(s.ranks))},
        counts{b.template allocate<std::size_t>(2 * static_cast<std::size_t>(s.ranks))},
        host_ends(static_cast<std::size_t>(s.ranks)) {
    std::size_t total_sent = 0;
    std::size_t total_kept = 0;
    for (std::size_t r = 0; r < host_ends.size(); ++r) {
      extents.push_back(wanted.where.size_of(r));
      sent_counts.push_back(wanted.of(r));
      kept_counts.push_back(quota_share(s.capacity, extents[r], s.n));
      sent_first.push_back(total_sent);
      kept_first.push_back(total_kept);
      total_sent += sent_counts[r];
      total_kept += kept_counts[r];
    }
    dealt = entries<B, R, I>{b, s.by_quota ? total_sent : s.capacity};
    parts = entries<B, R, I>{b, s.by_quota ? 0 : total_sent};
    sent = entries<B, R, I>{b, s.by_quota && lossless ? 0 : total_sent};
    gathered = entries<B, R, I>{b, total_kept};
    result = entries<B, R, I>{b, total_kept};
    merging.reserve(std::max<std::size_t>(host_ends.size(), 3));
    b.fill(fault.view(), std::uint32_t{0});
  }
  [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

  /// Owner r's part of a list of all that is sent, or of `gathered`. Their counts have places of their own.
  [[nodiscard]] view sent_part(B& b, view const& list, std::size_t r) {
    return stretch(b, list, sent_first[r], sent_counts[r], 2 * r);
  }
  [[nodiscard]] view kept_part(B& b, std::size_t r) {
    return stretch(b, gathered.view(), kept_first[r], kept_counts[r], 2 * r + 1);
  }

  /// The selection by owner, each owner's entries by place, as many as its quota. Where ranks selected by quotas nothing has to
  /// be cut, or asked.
  [[nodiscard]] view cut(B& backend, view const& selection) {
    backend.deal(selection, wanted.where, dealt.view(), ends.view());
    if (shape.by_quota) return dealt.view();
    backend.read(ends.view(), std::span<std::size_t>{host_ends});
    std::size_t begin = 0;
    for (std::size_t r = 0; r < host_ends.size(); ++r) {
      auto const all = dealt.view();
      std::size_t const size = host_ends[r] - begin;
      view const here = stretch(backend, all, begin, size, 2 * r + 1);
      auto const part = sent_part(backend, parts.view(), r);
      backend.top_of(here, part.capacity(), part);
      backend.pad(part, part.capacity());
      begin = host_ends[r];
    }
    return parts.view();
  }

  /// All that this rank sent, at its positions. Places in `list` are positions afterwards.
  [[nodiscard]] view as_sent(B& backend, view const& list) {
    merging.clear();
    for (std::size_t r = 0; r < sent_counts.size(); ++r) {
      merging.push_back(sent_part(backend, list, r));
      backend.positions(merging[r], wanted.where, r);
    }
    backend.merge_sum(std::span<view const>{merging}, sent.view());
    return sent.view();
  }

  /// Every owner's kept sums, in `gathered`, become the result, in the order of positions.
  void put_together(B& backend) {
    merging.clear();
    for (std::size_t r = 0; r < kept_counts.size(); ++r) {
      merging.push_back(kept_part(backend, r));
      backend.positions(merging[r], wanted.where, r);
    }
    backend.merge_sum(std::span<view const>{merging}, result.view());
  }

  void expect_sound(B& backend, std::string_view name) {
    if (backend.read(fault.view()) != 0)
      throw error{errc::corrupt_message, sentence(name, ": a rank's places do not increase below an owner's size")};
  }

  exchange_shape shape;
  quotas wanted;
  std::vector<std::size_t> extents, sent_counts, kept_counts, sent_first, kept_first;  // of each owner
  typename B::template buffer<std::uint32_t> fault;
  typename B::template buffer<std::size_t> ends, counts;
  std::vector<std::size_t> host_ends;
  entries<B, R, I> dealt, parts, sent, gathered, result;
  std::vector<view> merging;

 private:
  [[nodiscard]] view stretch(B& b, view const& list, std::size_t first, std::size_t size, std::size_t slot) {
    view const part{list.indices.subspan(first, size), list.values.subspan(first, size),
                    counts.view().subspan(slot, 1)};
    b.fill(part.count, size);
    return part;
  }
};

}  // namespace topsum::detail

#endif
