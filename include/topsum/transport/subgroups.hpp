// SPDX-License-Identifier: BSL-1.0
/// \file
/// Transport: some ranks of another one at a time.
#ifndef TOPSUM_TRANSPORT_SUBGROUPS_HPP
#define TOPSUM_TRANSPORT_SUBGROUPS_HPP

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum {

/// Every `stride`-th rank from `first` on, `count` of them.
struct rank_group {
  int first = 0;
  int stride = 1;
  int count = 1;

  /// Where rank r of the group is among all; r < count.
  [[nodiscard]] constexpr int world(int r) const noexcept { return first + r * stride; }
  [[nodiscard]] constexpr bool has(int rank) const noexcept {
    int const beyond = rank - first;
    return beyond >= 0 && beyond % stride == 0 && beyond / stride < count;
  }
};

/// `subgroups{transport}` is that transport; between `enter` and `restore` it is the ranks of a group, numbered from 0, to those who entered.
///
/// No communicator is split, so nothing is collective about entering: ranks outside simply do not take part in the messages.
/// Moves what `T` moves, by its `start` and `finish`; collectives are built from those (`transport/verbs.hpp`), since the native
/// ones take all ranks. Handles are cheap to copy and share the group. A handle belongs to one thread.
/// Cost: an addition a message. Allocates when made.
template <transport T>
class subgroups {
 public:
  static constexpr bool stream_ordered = is_stream_ordered<T>;
  static constexpr bool stages_host_memory = topsum::stages_host_memory<T>;
  using ticket = typename T::ticket;

  explicit subgroups(T inner) : inner_{std::move(inner)}, shared_{std::make_shared<shared>()} {
    shared_->group = everyone();
    shared_->room.resize(2 * static_cast<std::size_t>(inner_.size()));
  }

  [[nodiscard]] int rank() const {
    rank_group const& group = shared_->group;
    return (inner_.rank() - group.first) / group.stride;
  }
  [[nodiscard]] int size() const { return shared_->group.count; }
  /// The ranks that these are among all; what `restore` takes.
  [[nodiscard]] rank_group const& group() const noexcept { return shared_->group; }

  /// From here on, to this rank, the ranks are those of `group`, a group of the present ones: groups nest. Local.
  /// Throws errc::bad_argument where this rank is not one of them, or they are not all there.
  void enter(rank_group const& group) {
    if (group.stride < 1 || group.count < 1 || group.first < 0 || group.world(group.count - 1) >= size() ||
        !group.has(rank()))
      throw error{errc::bad_argument,
                  detail::sentence("subgroups: rank ", rank(), " of ", size(), " cannot enter the group of ",
                                   group.count, " ranks from ", group.first, " on, every ", group.stride)};
    rank_group const& from = shared_->group;
    shared_->group = {from.world(group.first), from.stride * group.stride, group.count};
  }
  /// The ranks that were before an `enter`. Local.
  void restore(rank_group const& before) { shared_->group = before; }

  template <class ConstBytes, class Bytes>
    requires can_send_recv<T, Bytes, ConstBytes>
  [[nodiscard]] ticket start(std::span<transfer<ConstBytes> const> sends, std::span<transfer<Bytes> const> receives) {
    std::span<slot> const room{shared_->room};
    if (sends.size() + receives.size() > room.size())
      throw error{errc::bad_argument, "subgroups: more messages at once than two for each rank"};
    return inner_.start(renumber(sends, room.first(sends.size())), renumber(receives, room.last(receives.size())));
  }
  void finish(ticket& posted) { inner_.finish(posted); }

 private:
  /// Room for one message, whatever memory it is in.
  struct alignas(std::max_align_t) slot {
    std::byte bytes[sizeof(std::max_align_t)];
  };
  struct shared {
    rank_group group;
    std::vector<slot> room;
  };

  /// The same messages by the numbers of all.
  template <class Bytes>
  [[nodiscard]] std::span<transfer<Bytes> const> renumber(std::span<transfer<Bytes> const> messages,
                                                          std::span<slot> room) const {
    static_assert(sizeof(transfer<Bytes>) <= sizeof(slot) && std::is_trivially_destructible_v<transfer<Bytes>>);
    transfer<Bytes>* first = nullptr;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      auto* const one = std::construct_at(reinterpret_cast<transfer<Bytes>*>(room.data()) + i,
                                          shared_->group.world(messages[i].peer), messages[i].bytes);
      if (i == 0) first = one;
    }
    return {first, messages.size()};
  }
  [[nodiscard]] rank_group everyone() const { return {0, 1, inner_.size()}; }

  T inner_;
  std::shared_ptr<shared> shared_;
};

}  // namespace topsum

#endif
