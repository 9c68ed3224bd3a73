// SPDX-License-Identifier: BSL-1.0
/// \file
/// Whole lists between two ranks: how many entries, then the entries.
#ifndef TOPSUM_DETAIL_LIST_MESSAGES_HPP
#define TOPSUM_DETAIL_LIST_MESSAGES_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <topsum/exchange/channel.hpp>

namespace topsum::detail {

/// Memory for messages of up to `capacity` entries of [0, n), and what is lost on the way.
///
/// With a lossy codec `send` puts what receivers do not get of a list into `lost`; with a lossless one nothing is done for it.
template <class B, class R, class I, class K>
class list_messages {
 public:
  using view = entries_view<B, R, I>;

  /// `name` is the exchange's, for error messages.
  list_messages(B& b, K const& codec, std::string_view name, std::size_t n, std::size_t capacity)
      : name_{name},
        n_{n},
        out_{b.template allocate<std::byte>(codec.template bytes_at_most<R, I>(capacity, 1, n))},
        in_{b.template allocate<std::byte>(out_.size())},
        fault_{b.template allocate<std::uint32_t>(1)},
        decoded_{b, K::lossless ? 0 : capacity},
        lost_{b, K::lossless ? 0 : capacity} {
    b.fill(fault_.view(), std::uint32_t{0});
  }

  /// A list of `count` entries to rank `to` and one from rank `from` into `arrived`; `nobody` for none. Returns how many came.
  template <class Channel>
  std::size_t pass(Channel& channel, K const& codec, int to, view list, std::size_t count, int from, view arrived) {
    auto& backend = channel.backend();
    auto const came = static_cast<std::size_t>(channel.pass(to, count, from));
    if (came > arrived.capacity())
      throw error{errc::corrupt_message, sentence(name_, ": rank ", from, " announced more entries than may travel"),
                  from};
    auto const message = out_.view().subspan(0, to < 0 ? 0 : codec.template bytes<R, I>(count, 0, n_));
    if (to >= 0) encode(backend, codec, list, count, message);
    auto const in = in_.view().subspan(0, codec.template bytes<R, I>(came, 0, n_));
    channel.pass(to, const_bytes_in<B>{message}, from, in);
    if (from >= 0) take(backend, codec, in, came, arrived);
    return came;
  }

  /// The root's list, on every rank, in `list`; returns how many entries it has.
  template <class Channel>
  std::size_t broadcast(Channel& channel, K const& codec, view from_root, std::size_t count, int root, view list) {
    auto& backend = channel.backend();
    std::uint64_t number = count;
    channel.broadcast(number, root);
    if (number > list.capacity())
      throw error{errc::corrupt_message, sentence(name_, ": rank ", root, " announced more entries than may be kept"),
                  root};
    count = static_cast<std::size_t>(number);
    auto const message = out_.view().subspan(0, codec.template bytes<R, I>(count, 0, n_));
    if (channel.rank() == root) encode(backend, codec, from_root, count, message);
    channel.broadcast(message, root);
    take(backend, codec, message, count, list);
    return count;
  }

  /// With a lossy codec: what the last list sent from here lost, and what receivers have of it.
  [[nodiscard]] view lost() { return lost_.view(); }
  [[nodiscard]] view sent() { return decoded_.view(); }

 private:
  void encode(B& backend, K const& codec, view list, std::size_t count, bytes_in<B> message) {
    codec.encode(backend, run_of(list, 0, count), 0, n_, message);
    if constexpr (!K::lossless) {
      codec.decode(backend, const_bytes_in<B>{message}, count, 0, n_, decoded_.view(), fault_.view());
      backend.divide(decoded_.view(), -1);
      view const both[] = {list, decoded_.view()};
      backend.merge_sum(std::span<view const>{both}, lost_.view());
      backend.divide(decoded_.view(), -1);
    }
  }

  void take(B& backend, K const& codec, bytes_in<B> message, std::size_t count, view list) {
    codec.decode(backend, const_bytes_in<B>{message}, count, 0, n_, list, fault_.view());
    if (backend.read(fault_.view()) != 0)
      throw error{errc::corrupt_message, sentence(name_, ": a rank's indices do not increase within [0, n)")};
  }

  std::string_view name_;
  std::size_t n_;
  typename B::template buffer<std::byte> out_, in_;
  typename B::template buffer<std::uint32_t> fault_;
  entries<B, R, I> decoded_, lost_;
};

/// A list that grows by others: sums for this rank's residual.
template <class B, class R, class I>
class growing_list {
 public:
  using view = entries_view<B, R, I>;
  growing_list(B& b, std::size_t capacity) : lists_{entries<B, R, I>{b, capacity}, entries<B, R, I>{b, capacity}} {}

  void clear(B& backend) { backend.fill(lists_[at_].view().count, std::size_t{0}); }
  void add(B& backend, view more) {
    view const both[] = {lists_[at_].view(), more};
    backend.merge_sum(std::span<view const>{both}, lists_[1 - at_].view());
    at_ = 1 - at_;
  }
  [[nodiscard]] view get() { return lists_[at_].view(); }

 private:
  entries<B, R, I> lists_[2];
  std::size_t at_ = 0;
};

}  // namespace topsum::detail

#endif
