// SPDX-License-Identifier: BSL-1.0
/// \file
/// Ranks as threads of one process: for tests, for trying the library out, and for programs that reduce over threads.
///
///     topsum::local::run(4, [](topsum::local::communicator ranks) { ... });
///
/// It has `start` and `finish` only; every collective is built from them (`transport/verbs.hpp`). When to prefer another: always,
/// where ranks are processes (`mpi`).
#ifndef TOPSUM_TRANSPORT_LOCAL_HPP
#define TOPSUM_TRANSPORT_LOCAL_HPP

#include <concepts>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/detail/meeting_point.hpp>

namespace topsum::local {

/// Handle of one rank; cheap to copy. Its calls belong to that rank's thread. Messages meet: the later of the two `start`s of a
/// message copies it, once, straight from the sender's memory to the receiver's. So a message costs one copy and a lock, and
/// allocates nothing once groups of its size have been seen.
class communicator {
 public:
  /// A started group. Move-only; destroyed before `finish`, it takes back what has not met, and the peers concerned get
  /// errc::transport.
  class ticket {
   public:
    ticket() = default;
    ticket(ticket&& other) noexcept : point_{std::move(other.point_)}, group_{std::exchange(other.group_, nullptr)} {}
    ticket& operator=(ticket&& other) noexcept {
      ticket old{std::move(*this)};
      point_ = std::move(other.point_);
      group_ = std::exchange(other.group_, nullptr);
      return *this;
    }
    ~ticket() {
      if (group_ != nullptr) point_->abandon(*group_);
    }

   private:
    friend class communicator;
    ticket(std::shared_ptr<detail::meeting_point> point, detail::group& group)
        : point_{std::move(point)}, group_{&group} {}
    std::shared_ptr<detail::meeting_point> point_;
    detail::group* group_ = nullptr;
  };

  /// Ranks get theirs from `run`.
  communicator(std::shared_ptr<detail::meeting_point> point, int rank) : point_{std::move(point)}, rank_{rank} {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return point_->size(); }

  /// Posts a group of messages; returns at once, or after copying those whose peer came first. The memory belongs to the
  /// transport until `finish`. Zero bytes are skipped. Takes every memory space that `memory_access` opens; both sides of a
  /// message name the same space. Throws errc::bad_argument for a peer that is no rank, std::bad_alloc.
  template <class ConstBytes, class Bytes>
    requires requires(ConstBytes from, Bytes to) {
      memory_access<ConstBytes>::address(from);
      memory_access<Bytes>::writable_address(to);
    }
  [[nodiscard]] ticket start(std::span<transfer<ConstBytes> const> sends, std::span<transfer<Bytes> const> receives) {
    for (auto const& send : sends) expect_rank(send.peer);
    for (auto const& receive : receives) expect_rank(receive.peer);
    detail::group& group = point_->open(rank_, sends.size() + receives.size());
    ticket posted{point_, group};
    for (auto const& [peer, bytes] : receives) {
      if (bytes.size() != 0) {
        group.add({.peer = peer,
                   .to = memory_access<Bytes>::writable_address(bytes),
                   .bytes = bytes.size(),
                   .copy = copy_into<Bytes>});
      }
    }
    for (auto const& [peer, bytes] : sends) {
      if (bytes.size() != 0) {
        group.add({.peer = peer, .from = memory_access<ConstBytes>::address(bytes), .bytes = bytes.size()});
      }
    }
    point_->post(group);
    return posted;
  }

  /// Returns when every message of the group has been copied; an empty ticket is done already. Throws errc::corrupt_message
  /// where two ranks disagree on a size (on both), errc::transport when a rank has left or has taken back its messages,
  /// errc::timeout after the time limit. Then nothing of the group is read or written any more.
  void finish(ticket& group) {
    if (group.group_ == nullptr) return;
    point_->wait(*group.group_);
    ticket done{std::move(group)};
  }

 private:
  void expect_rank(int peer) const {
    if (peer < 0 || peer >= size()) {
      throw error{errc::bad_argument,
                  "local: rank " + std::to_string(rank_) + " names a peer " + std::to_string(peer) + " among " +
                      std::to_string(size()) + " ranks",
                  rank_};
    }
  }

  template <class Bytes>
  static void copy_into(std::byte* to, std::byte const* from, std::size_t bytes) {
    if constexpr (requires { memory_access<Bytes>::copy(to, from, bytes); }) {
      memory_access<Bytes>::copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  std::shared_ptr<detail::meeting_point> point_;
  int rank_;
};

/// Calls `f(communicator&)` on `ranks` threads, one a rank, and returns when all have ended: a vector of what they returned, by
/// rank, or nothing. `f` is shared. When ranks threw, rethrows the first by rank, causes before consequences: what a rank got
/// because another had left comes last. Throws errc::bad_argument unless ranks >= 1, std::system_error without threads.
template <class F>
  requires std::invocable<F&, communicator&>
auto run(int ranks, F&& f, options const& how = {}) {
  using result = std::invoke_result_t<F&, communicator&>;
  constexpr bool returns = !std::is_void_v<result>;
  using slot = std::conditional_t<returns, std::optional<std::decay_t<std::conditional_t<returns, result, int>>>, char>;

  if (ranks < 1)
    throw error{errc::bad_argument, "local::run: " + std::to_string(ranks) + " ranks; expected at least 1"};
  auto const point = std::make_shared<detail::meeting_point>(ranks, how);
  std::vector<slot> results(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(ranks));

  auto const one = [&](int rank) noexcept {
    auto const r = static_cast<std::size_t>(rank);
    try {
      communicator mine{point, rank};
      if constexpr (returns) {
        results[r].emplace(std::invoke(f, mine));
      } else {
        std::invoke(f, mine);
      }
      point->leave(rank, "its function ended");
    } catch (...) {
      faults[r] = std::current_exception();
      point->leave(rank, detail::reason_of(faults[r]));
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      try {
        threads.emplace_back(one, rank);
      } catch (...) {
        faults[static_cast<std::size_t>(rank)] = std::current_exception();
        for (int missing = rank; missing < ranks; ++missing) point->leave(missing, "no thread could be started for it");
        break;
      }
    }
  }
  if (std::exception_ptr const cause = detail::cause_among(faults)) std::rethrow_exception(cause);
  if constexpr (returns) {
    std::vector<typename slot::value_type> all;
    all.reserve(results.size());
    for (slot& one_result : results) {
      if (one_result) all.push_back(std::move(*one_result));  // all have: none threw
    }
    return all;
  }
}

}  // namespace topsum::local

#endif
