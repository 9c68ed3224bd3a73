// SPDX-License-Identifier: BSL-1.0
/// \file
/// Where the messages of `topsum::local` meet. One lock guards the queues; data are copied outside it.
#ifndef TOPSUM_TRANSPORT_DETAIL_MEETING_POINT_HPP
#define TOPSUM_TRANSPORT_DETAIL_MEETING_POINT_HPP

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <topsum/error.hpp>

namespace topsum::local {

/// How ranks wait, and whether they are shuffled.
struct options {
  /// `finish` throws errc::timeout when it has waited that long.
  std::chrono::milliseconds time_limit = std::chrono::seconds{30};
  /// Not 0: groups post their messages in a random order with random pauses between them, so that tests see orders of arrival
  /// vary. Messages of a pair of ranks keep their order.
  std::uint64_t shuffle_seed = 0;
};

namespace detail {

/// What a rank gets because another left: a consequence, not a cause.
class rank_left : public error {
 public:
  using error::error;
};

/// Why a request failed.
enum class cause : unsigned char { none, size, left, taken_back, copy };

struct group;

/// One side of one message. A receive has `to` and `copy`, a send has `from`.
struct request {
  int peer = 0;
  std::byte const* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  void (*copy)(std::byte* to, std::byte const* from, std::size_t bytes) = nullptr;
  group* owner = nullptr;
  request* next = nullptr;  // in its line
  bool waits = false;       // it is in its line
  std::uint64_t turn = 0;   // order of posting when shuffled

  [[nodiscard]] bool sends() const noexcept { return to == nullptr; }
};

/// The requests of one ticket. Reused, so that its vector allocates only while it grows.
struct group {
  int rank = 0;
  std::vector<request> requests;  // never grows beyond its capacity while posted: lines point into it
  std::size_t open = 0;           // requests neither done nor failed
  std::size_t copying = 0;        // requests being copied, by whichever thread
  cause why = cause::none;        // the first failure
  request failed;
  std::size_t other_bytes = 0;

  void add(request one) {
    one.owner = this;
    requests.push_back(one);
  }
};

class meeting_point {
 public:
  meeting_point(int ranks, options const& how)
      : how_{how}, ranks_(static_cast<std::size_t>(ranks)), lines_(ranks_.size() * ranks_.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].random = how.shuffle_seed * 0x9e3779b97f4a7c15U + r;
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

  group& open(int rank, std::size_t requests) {
    std::unique_lock const lock{mutex_};
    auto& mine = at(rank);
    if (mine.spare.empty()) {
      mine.spare.reserve(mine.all.size() + 1);
      mine.all.push_back(std::make_unique<group>());
      mine.spare.push_back(mine.all.back().get());
    }
    group& one = *mine.spare.back();
    one.rank = rank;
    one.requests.clear();
    one.requests.reserve(requests);
    one.open = 0;
    one.why = cause::none;
    mine.spare.pop_back();
    return one;
  }

  void post(group& mine) {
    if (how_.shuffle_seed != 0) shuffle(mine);
    std::unique_lock lock{mutex_};
    mine.open = mine.requests.size();
    for (request& one : mine.requests) {
      if (how_.shuffle_seed != 0) pause(lock, mine.rank);
      post(lock, one);
    }
  }

  /// Waits for all requests. On failure nothing of the group is in a line or being copied any more.
  void wait(group& mine) {
    std::unique_lock lock{mutex_};
    if (how_.shuffle_seed != 0) pause(lock, mine.rank);
    auto const settled = [&] { return mine.open == 0 || mine.why != cause::none; };
    auto& ready = at(mine.rank).ready;
    bool const in_time = ready.wait_for(
        lock, std::min<std::chrono::milliseconds>(how_.time_limit, std::chrono::hours{24 * 365}), settled);
    auto const late = std::find_if(mine.requests.begin(), mine.requests.end(),
                                   [](request const& one) { return one.waits; });
    if (!in_time && late != mine.requests.end()) {
      int const peer = late->peer;
      take_back(lock, mine);
      throw error{errc::timeout,
                  "local: rank " + std::to_string(peer) + " did not answer rank " + std::to_string(mine.rank) +
                      " within " + std::to_string(how_.time_limit.count()) + " ms",
                  peer};
    }
    if (mine.why != cause::none) {
      take_back(lock, mine);
      report(mine);
    }
    ready.wait(lock, [&] { return mine.open == 0; });  // only copies are left
    if (mine.why != cause::none) report(mine);
  }

  /// Takes the group's requests out of all lines, and the group back.
  void abandon(group& mine) noexcept {
    std::unique_lock lock{mutex_};
    take_back(lock, mine);
    at(mine.rank).spare.push_back(&mine);  // reserved in `open`
  }

  /// From now on nobody waits for `rank`.
  void leave(int rank, std::string why) {
    std::unique_lock const lock{mutex_};
    at(rank).left = true;
    at(rank).why = std::move(why);
    for (int peer = 0; peer < size(); ++peer) {
      fail_all(line(rank, peer), cause::left);
      fail_all(line(peer, rank), cause::left);
    }
  }

 private:
  struct member {
    std::condition_variable ready;
    std::vector<std::unique_ptr<group>> all;
    std::vector<group*> spare;
    std::uint64_t random = 0;
    bool left = false;
    std::string why;
  };

  /// What waits between two ranks: sends only or receives only, oldest first.
  struct queue {
    request* head = nullptr;
    request* tail = nullptr;
    bool broken = false;  // a message was taken back: later ones would meet the wrong partner
  };

  member& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  queue& line(int from, int to) {
    return lines_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }
  queue& line_of(request const& one) {
    return one.sends() ? line(one.owner->rank, one.peer) : line(one.peer, one.owner->rank);
  }

  void post(std::unique_lock<std::mutex>& lock, request& mine) {
    queue& here = line_of(mine);
    if (here.broken) {
      fail(mine, cause::taken_back);
    } else if (here.head != nullptr && here.head->sends() != mine.sends()) {
      meet(lock, mine, pop(here));
    } else if (at(mine.peer).left) {
      fail(mine, cause::left);
    } else {
      mine.waits = true;
      mine.next = nullptr;
      (here.head == nullptr ? here.head : here.tail->next) = &mine;
      here.tail = &mine;
    }
  }

  void meet(std::unique_lock<std::mutex>& lock, request& a, request& b) {
    if (a.bytes != b.bytes) {
      fail(a, cause::size, b.bytes);
      fail(b, cause::size, a.bytes);
      return;
    }
    request const& send = a.sends() ? a : b;
    request const& receive = a.sends() ? b : a;
    bool const unlocked = a.bytes > 4096;  // a short copy is cheaper than to lock again
    ++a.owner->copying;
    ++b.owner->copying;  // keeps both groups, hence both buffers, alive
    if (unlocked) lock.unlock();
    bool copied = true;
    try {
      receive.copy(receive.to, send.from, send.bytes);
    } catch (...) {
      copied = false;
    }
    if (unlocked) lock.lock();
    --a.owner->copying;
    --b.owner->copying;
    for (request* one : {&a, &b}) {
      if (copied) {
        --one->owner->open;
        wake(*one->owner);
      } else {
        fail(*one, cause::copy);
      }
    }
  }

  void wake(group const& one) {
    if (one.open == 0 || one.copying == 0) at(one.rank).ready.notify_all();
  }

  void fail(request& one, cause why, std::size_t other_bytes = 0) {
    group& owner = *one.owner;
    if (owner.why == cause::none) {
      owner.why = why;
      owner.failed = one;
      owner.other_bytes = other_bytes;
    }
    --owner.open;
    at(owner.rank).ready.notify_all();
  }

  static request& pop(queue& here) {
    request& first = *here.head;
    here.head = first.next;
    first.waits = false;
    return first;
  }

  void fail_all(queue& here, cause why) {
    while (here.head != nullptr) fail(pop(here), why);
  }

  void take_back(std::unique_lock<std::mutex>& lock, group& mine) {
    for (request& one : mine.requests) {
      if (!one.waits) continue;
      queue& here = line_of(one);
      here.broken = true;
      fail_all(here, cause::taken_back);
    }
    at(mine.rank).ready.wait(lock, [&] { return mine.copying == 0; });
  }

  [[noreturn]] void report(group const& mine) {
    request const& one = mine.failed;
    std::string const us = "rank " + std::to_string(mine.rank);
    std::string const them = "rank " + std::to_string(one.peer);
    switch (mine.why) {
      case cause::size:
        throw error{errc::corrupt_message,
                    "local: " + us + (one.sends() ? " sent " : " expected ") + std::to_string(one.bytes) + " bytes, " +
                        them + (one.sends() ? " expected " : " sent ") + std::to_string(mine.other_bytes)};
      case cause::left:
        throw rank_left{errc::transport,
                        "local: " + them + " left (" + at(one.peer).why + ") while " + us + " waited for it", one.peer};
      case cause::taken_back:
        throw rank_left{errc::transport, "local: messages between " + us + " and " + them + " were given up", one.peer};
      default: throw error{errc::transport, "local: a message between " + us + " and " + them + " could not be copied"};
    }
  }

  std::uint64_t draw(int rank) {  // splitmix64
    std::uint64_t x = at(rank).random += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  /// Peers in random order; the messages of one line keep theirs.
  void shuffle(group& mine) {
    std::uint64_t const salt = draw(mine.rank) | 1U;
    for (request& one : mine.requests) {
      one.turn = (static_cast<std::uint64_t>(one.peer) * 2 + (one.sends() ? 1U : 0U) + 1) * salt * 0x9e3779b97f4a7c15U;
      one.turn ^= one.turn >> 32U;
    }
    std::stable_sort(mine.requests.begin(), mine.requests.end(),
                     [](request const& a, request const& b) { return a.turn < b.turn; });
  }

  void pause(std::unique_lock<std::mutex>& lock, int rank) {
    std::uint64_t const dice = draw(rank) % 32;
    if (dice >= 12) return;
    lock.unlock();
    if (dice < 2) {
      std::this_thread::sleep_for(std::chrono::microseconds{20 + 40 * dice});
    } else {
      std::this_thread::yield();
    }
    lock.lock();
  }

  options how_;
  std::mutex mutex_;
  std::vector<member> ranks_;
  std::vector<queue> lines_;  // line(from, to)
};

/// Why a rank left, for those that wait for it.
inline std::string reason_of(std::exception_ptr const& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (rank_left const& left) {
    return "because of rank " + std::to_string(left.rank());
  } catch (std::exception const& other) {
    return std::string{"it threw: "} + other.what();
  } catch (...) {
    return "it threw";
  }
}

/// The first of the exceptions by rank: causes, then transport faults, then consequences.
inline std::exception_ptr cause_among(std::vector<std::exception_ptr> const& faults) {
  auto const weight = [](std::exception_ptr const& fault) {
    try {
      std::rethrow_exception(fault);
    } catch (rank_left const&) {
      return 2;
    } catch (error const& other) {
      return other.code() == errc::transport || other.code() == errc::timeout ? 1 : 0;
    } catch (...) {
      return 0;
    }
  };
  std::exception_ptr best;
  int least = 3;
  for (std::exception_ptr const& fault : faults) {
    int const w = fault ? weight(fault) : 3;
    if (w < least) {
      best = fault;
      least = w;
    }
  }
  return best;
}

}  // namespace detail
}  // namespace topsum::local

#endif
