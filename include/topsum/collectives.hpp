// SPDX-License-Identifier: BSL-1.0
/// \file
/// Sparse reduce-scatter and sparse allgather by themselves, for lists of entries that you have.
#ifndef TOPSUM_COLLECTIVES_HPP
#define TOPSUM_COLLECTIVES_HPP

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <topsum/backend/host.hpp>
#include <topsum/codec/raw.hpp>
#include <topsum/codec/switching.hpp>
#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/exchange/split_gather.hpp>
#include <topsum/layout.hpp>

namespace topsum {

/// What lists a `sparse_collectives` takes: indices in [0, n), at most k of them.
struct list_shape {
  std::size_t n = 0;
  std::size_t k = 0;
};

/// A list of entries in the backend's memory: indices increase. Valid until the next call of whoever gave it.
template <class B, class R, class I>
struct sparse_list {
  typename B::template span<I const> indices;
  typename B::template span<R const> values;
  [[nodiscard]] std::size_t size() const noexcept { return indices.size(); }
};

/// Sparse reduce-scatter and allgather over the ranks of `C`, for values R (`float` or `double`), with all memory allocated once.
///
///     topsum::sparse_collectives<float, topsum::mpi::communicator> lists{comm, {.n = 1'000'000, .k = 10'000}};
///     auto const mine = lists.reduce_scatter(indices, values);        // sums of the region [lists.begin(), lists.end())
///     auto const all = lists.all_gather(mine.indices, mine.values);   // every region's, on every rank
///
/// Rank r's region is the r-th of P equal parts of [0, n). The two together are `split_gather`, and cost what it says: words sent, raw
/// codec, at most 2k in the first, and the region's entries P - 1 times in the second; 12 a peer for headers each, 2(P-1) for counts.
/// Messages turn into bitmaps where those are smaller. Nothing is selected and no residual is kept: with a lossy codec what is lost, is.
/// Deterministic: a region's owner sums its own entries first, then rank-1's, rank-2's, ... cyclically. Memory: O(kP).
///
/// The constructor and both calls are collective. They throw topsum::error, on every rank alike: errc::mismatch (ranks differ in shape, types
/// or codec, or in the order of calls), errc::bad_argument (a list is longer than k, its indices do not increase within [0, n), or the
/// region for `all_gather`), errc::out_of_memory; on this rank errc::transport, errc::timeout, errc::corrupt_message: make a new one then.
template <class R, transport C, index_type I = std::uint32_t, class K = raw, class B = host>
  requires reaches<C, B> && codec<K, B, R, I>
class sparse_collectives {
 public:
  using list = sparse_list<B, R, I>;
  using indices_span = typename B::template span<I const>;
  using values_span = typename B::template span<R const>;

  sparse_collectives(C comm, list_shape shape, K codec = K{}, B on = B{})
      : layout_{layout{shape.n}}, codec_{switching<K>{codec}}, channel_{std::move(on), std::move(comm)} {
    wire_header mine{wire_header::kind::construction,
                     errc::none,
                     channel<B, C>::types(value_traits<R>::code, sizeof(I)),
                     shape.k,
                     shape.n,
                     layout_.hash(),
                     0};
    description said;
    said.open("sparse_collectives");
    said("codec", codec);
    said.close();
    mine.b = said.hash();
    std::string problem;
    try {
      if (shape.k > shape.n)
        throw error{errc::bad_argument,
                    detail::sentence("sparse_collectives: .k = ", shape.k, " exceeds .n = ", shape.n)};
      exchange_shape const s{shape.n, shape.k, channel_.rank(), channel_.ranks()};
      memory_.emplace(channel_.backend(), codec, s, split_gather{});
      mine_ = entries<B, R, I>{channel_.backend(), shape.k};
    } catch (error const& e) {
      mine.code = e.code();
      problem = std::string{e.what()}.substr(std::string_view{"topsum: "}.size());
    } catch (std::bad_alloc const&) {
      mine.code = errc::out_of_memory;
      problem = "sparse_collectives could not allocate its memory";
    }
    fingerprint_ = channel_.agree(mine, problem);
  }

  /// This rank's region.
  [[nodiscard]] std::size_t begin() const { return memory_->first[static_cast<std::size_t>(channel_.rank())]; }
  [[nodiscard]] std::size_t end() const { return memory_->first[static_cast<std::size_t>(channel_.rank()) + 1]; }

  /// Sums over ranks of the entries in this rank's region.
  [[nodiscard]] list reduce_scatter(indices_span indices, values_span values) {
    channel_.begin(fingerprint_, calls_++, layout_);
    auto const taken = take(indices, values, mine_.view(), 0, layout_.size());
    exchange_.reduce_scatter(channel_, codec_, taken, *memory_);
    return used(memory_->sums.view());
  }
  /// Every rank's entries, which lie in its region, one region behind the other, on every rank.
  [[nodiscard]] list all_gather(indices_span indices, values_span values) {
    channel_.begin(fingerprint_, calls_++, layout_);
    take(indices, values, memory_->sums.view(), begin(), end());
    channel_.open();
    exchange_.all_gather(channel_, codec_, *memory_);
    return used(memory_->result.view());
  }
  [[nodiscard]] B& backend() noexcept { return channel_.backend(); }

 private:
  using view = entries_view<B, R, I>;

  /// Copies a list, unless it is there already, and checks it; a fault is told to all.
  view take(indices_span indices, values_span values, view to, std::size_t first, std::size_t last) {
    B& b = channel_.backend();
    if (indices.size() != values.size() || indices.size() > to.capacity())
      channel_.fail(errc::bad_argument, indices.size());
    if (memory_access<indices_span>::address(indices) !=
        memory_access<indices_span>::address(indices_span{to.indices})) {
      b.copy(indices, to.indices);
      b.copy(values, to.values);
      b.fill(to.count, indices.size());
    }
    b.check(to, first, last, memory_->fault.view());
    if (b.read(memory_->fault.view()) != 0) {
      b.fill(memory_->fault.view(), std::uint32_t{0});
      channel_.fail(errc::bad_argument, indices.size());
    }
    return to;
  }
  [[nodiscard]] list used(view of) {
    std::size_t const count = channel_.backend().read(of.count);
    return {indices_span{of.indices.subspan(0, count)}, values_span{of.values.subspan(0, count)}};
  }

  layout layout_;
  split_gather exchange_;
  switching<K> codec_;
  channel<B, C> channel_;
  std::optional<split_gather::workspace<B, R, I, K>> memory_;
  entries<B, R, I> mine_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace topsum

#endif
