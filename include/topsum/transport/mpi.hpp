// SPDX-License-Identifier: BSL-1.0
/// \file
/// Ranks as processes, over MPI: the only public header that includes `<mpi.h>`. Host memory only.
///
///     topsum::mpi::session mpi{argc, argv};
///     auto ranks = mpi.world();                                               // or, of a communicator that you have:
///     auto rows = topsum::mpi::communicator::duplicate(my_communicator);      // its own traffic, the usual choice
///     auto same = topsum::mpi::communicator::adopt(my_communicator);          // nothing else may use it meanwhile
///
/// Native verbs: start, finish, all_gather, all_gather_v, all_to_all, all_reduce, broadcast. all_to_all_v is built from
/// messages: whether sizes exceed what one MPI call takes is known to some ranks only. What MPI reports is thrown as
/// errc::transport with MPI's text (errc::corrupt_message for messages of another size than expected), never left to MPI's
/// handler that ends the job. A rank that died is the launcher's matter: MPI knows no time limit.
#ifndef TOPSUM_TRANSPORT_MPI_HPP
#define TOPSUM_TRANSPORT_MPI_HPP

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/detail/mpi_calls.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum::mpi {

/// How bytes travel.
struct options {
  /// Bytes that one MPI call moves at most, from 1, the same on every rank: larger messages go in pieces. Only tests want another value.
  int largest_message = INT_MAX;
};

/// Handle of an MPI intracommunicator; cheap to copy. All verbs throw errc::bad_argument before MPI_Init and after MPI_Finalize.
/// Calls come from one thread at a time (MPI_THREAD_FUNNELED: the one that initialised MPI), those of collectives in the same
/// order on every rank. Nothing allocates once groups of their size have been seen, except inside MPI.
class communicator {
 public:
  /// A started group; owns its requests. Move-only. Destroyed before `finish`, it cancels what it receives; MPI may still read
  /// memory of its sends until the peers have them.
  class ticket {
   public:
    ticket() = default;
    ticket(ticket&&) noexcept = default;
    ticket& operator=(ticket&& other) noexcept {
      ticket old{std::move(*this)};
      link_ = std::move(other.link_);
      group_ = std::move(other.group_);
      return *this;
    }
    ~ticket() {
      if (group_) group_->drop();
    }

   private:
    friend class communicator;
    std::shared_ptr<detail::link> link_;
    std::unique_ptr<detail::group> group_;
  };

  /// A communicator of topsum's own with the ranks of `ranks`: traffic on that one goes on undisturbed. Collective. The duplicate
  /// is freed with its last handle. Throws errc::bad_argument for MPI_COMM_NULL, an intercommunicator, bad options.
  [[nodiscard]] static communicator duplicate(MPI_Comm ranks, options const& how = {}) {
    expect_usable(ranks, how, "communicator::duplicate");
    auto link = std::make_shared<detail::link>();
    detail::check(MPI_Comm_dup(ranks, &link->comm), "MPI_Comm_dup");
    link->owned = true;
    return communicator{std::move(link), how};
  }
  /// The user's communicator as it is, which stays the user's: it must outlive the last handle, and carry no other messages while
  /// verbs run; adopt it once at a time. Local. Its error handler is MPI_ERRORS_RETURN until the last handle is gone. Throws as `duplicate` does.
  [[nodiscard]] static communicator adopt(MPI_Comm ranks, options const& how = {}) {
    expect_usable(ranks, how, "communicator::adopt");
    auto link = std::make_shared<detail::link>();
    detail::check(MPI_Comm_get_errhandler(ranks, &link->handler_before), "MPI_Comm_get_errhandler");
    link->comm = ranks;
    return communicator{std::move(link), how};
  }

  [[nodiscard]] int rank() const noexcept { return link_->rank; }
  [[nodiscard]] int size() const noexcept { return link_->size; }
  /// MPI's handle, still owned as before.
  [[nodiscard]] MPI_Comm native() const noexcept { return link_->comm; }

  /// Posts a group of messages and returns; the memory belongs to MPI until `finish`. A message of b bytes is
  /// ceil(b / largest_message) of MPI's.
  [[nodiscard]] ticket start(std::span<transfer<host_span<std::byte const>> const> sends,
                             std::span<transfer<host_span<std::byte>> const> receives) {
    detail::expect_running("start");
    for (auto const& send : sends) expect_rank(send.peer);
    for (auto const& receive : receives) expect_rank(receive.peer);
    ticket posted;
    posted.link_ = link_;
    if (link_->spare.empty()) link_->spare.push_back(std::make_unique<detail::group>());
    posted.group_ = std::move(link_->spare.back());
    link_->spare.pop_back();
    detail::group& group = *posted.group_;
    for (auto const& [peer, bytes] : receives) {
      in_pieces(bytes, [&, to = peer](std::byte* data, int size) {
        group.sizes.push_back(size);
        group.peers.push_back(to);
        group.requests.push_back(MPI_REQUEST_NULL);
        detail::check(MPI_Irecv(data, size, MPI_BYTE, to, tag, link_->comm, &group.requests.back()), "MPI_Irecv");
      });
    }
    for (auto const& [peer, bytes] : sends) {
      in_pieces(bytes, [&, to = peer](std::byte const* data, int size) {
        group.requests.push_back(MPI_REQUEST_NULL);
        detail::check(MPI_Isend(data, size, MPI_BYTE, to, tag, link_->comm, &group.requests.back()), "MPI_Isend");
      });
    }
    return posted;
  }

  /// Returns when every message of the group is complete; an empty ticket is done already. Throws errc::corrupt_message on the
  /// receiver of a message of another size than expected, errc::transport for what MPI reports; then what is left of the
  /// group is given up.
  void finish(ticket& started) {
    if (!started.group_) return;
    detail::expect_running("finish");
    ticket mine = std::move(started);  // given up if this throws
    detail::group& group = *mine.group_;
    detail::returning_errors const guard;
    // One by one, since MPI_Waitall (Open MPI 4) never returns once a receive has failed. All of them progress meanwhile.
    for (std::size_t i = 0; i < group.requests.size(); ++i) {
      MPI_Status status;
      detail::check(MPI_Wait(&group.requests[i], &status), "MPI_Wait");
      if (i >= group.sizes.size()) continue;
      int received = 0;
      detail::check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
      if (received != group.sizes[i]) {
        throw error{errc::corrupt_message, "mpi: rank " + std::to_string(rank()) + " expected " +
                                               std::to_string(group.sizes[i]) + " bytes, rank " +
                                               std::to_string(group.peers[i]) + " sent " + std::to_string(received)};
      }
    }
    group.clear();
    link_->spare.push_back(std::move(mine.group_));
  }

  /// `collective::all_gather`; a ring of messages where the result exceeds one MPI call.
  void all_gather(host_span<std::byte const> mine, host_span<std::byte> all) {
    detail::expect_running("all_gather");
    if (all.size() == 0) return;
    if (all.size() <= link_->largest) {
      int const block = static_cast<int>(mine.size());
      detail::check(MPI_Allgather(unless_there(mine, all.subspan(mine.size() * index(rank()))), block, MPI_BYTE,
                                  all.data(), block, MPI_BYTE, link_->comm),
                    "MPI_Allgather");
    } else {
      gather_by_ring(mine, all, [n = mine.size()](int) { return n; });
    }
  }
  /// `collective::all_gather_v`, likewise.
  void all_gather_v(host_span<std::byte const> mine, host_span<std::byte> all, host_span<std::size_t const> sizes) {
    detail::expect_running("all_gather_v");
    if (all.size() == 0) return;
    if (all.size() > link_->largest) {
      gather_by_ring(mine, all, [sizes](int block) { return sizes[index(block)]; });
      return;
    }
    int place = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      link_->counts[r] = static_cast<int>(sizes[r]);
      link_->places[r] = place;
      place += link_->counts[r];
    }
    auto const own = all.subspan(static_cast<std::size_t>(link_->places[index(rank())]));
    detail::check(MPI_Allgatherv(unless_there(mine, own), static_cast<int>(mine.size()), MPI_BYTE, all.data(),
                                 link_->counts.data(), link_->places.data(), MPI_BYTE, link_->comm),
                  "MPI_Allgatherv");
  }
  /// `collective::all_to_all`; pairs of messages where a buffer exceeds one MPI call.
  void all_to_all(host_span<std::byte const> from, host_span<std::byte> to) {
    detail::expect_running("all_to_all");
    if (from.size() == 0) return;
    std::size_t const block = from.size() / index(size());
    if (from.size() <= link_->largest) {
      detail::check(MPI_Alltoall(from.data(), static_cast<int>(block), MPI_BYTE, to.data(), static_cast<int>(block),
                                 MPI_BYTE, link_->comm),
                    "MPI_Alltoall");
    } else {
      collective::host_memory memory;
      collective::detail::block_walk const own{size(), rank(), [block](int) { return block; }};
      collective::detail::copy_own(memory, own.of(from), own.of(to));
      collective::detail::rotate(*this, memory, own, from, own, to);
    }
  }
  /// Elementwise over ranks, in place. As deterministic as the MPI library: usually the same bits on every rank, and in every
  /// run with as many ranks.
  template <reducible V>
  void all_reduce(host_span<V> values, combine how) {
    detail::expect_running("all_reduce");
    std::size_t const most = std::max<std::size_t>(1, link_->largest / sizeof(V));
    for (std::size_t done = 0; done < values.size(); done += most) {
      int const count = static_cast<int>(std::min(most, values.size() - done));
      detail::check(MPI_Allreduce(MPI_IN_PLACE, values.data() + done, count, detail::type_of<V>(),
                                  how == combine::sum ? MPI_SUM : MPI_MAX, link_->comm),
                    "MPI_Allreduce");
    }
  }
  /// The root's bytes, on every rank. Throws errc::bad_argument for a root that is no rank.
  void broadcast(host_span<std::byte> bytes, int root) {
    detail::expect_running("broadcast");
    expect_rank(root);
    in_pieces(bytes, [&](std::byte* data, int size) {
      detail::check(MPI_Bcast(data, size, MPI_BYTE, root, link_->comm), "MPI_Bcast");
    });
  }

 private:
  static constexpr int tag = 7401;

  communicator(std::shared_ptr<detail::link> link, options const& how) : link_{std::move(link)} {
    detail::check(MPI_Comm_set_errhandler(link_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    detail::check(MPI_Comm_rank(link_->comm, &link_->rank), "MPI_Comm_rank");
    detail::check(MPI_Comm_size(link_->comm, &link_->size), "MPI_Comm_size");
    link_->largest = static_cast<std::size_t>(how.largest_message);
    link_->counts.resize(index(size()));
    link_->places.resize(index(size()));
  }

  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

  static void expect_usable(MPI_Comm ranks, options const& how, char const* verb) {
    detail::expect_running(verb);
    auto const refuse = [&](char const* sentence) {
      throw error{errc::bad_argument, std::string{"mpi: "} + verb + sentence};
    };
    if (ranks == MPI_COMM_NULL) refuse(": MPI_COMM_NULL is no communicator");
    int inter = 0;
    detail::check(MPI_Comm_test_inter(ranks, &inter), "MPI_Comm_test_inter");
    if (inter != 0) refuse(": an intercommunicator; merge it with MPI_Intercomm_merge first");
    if (how.largest_message < 1) refuse(": largest_message is at least 1 byte");
  }

  void expect_rank(int peer) const {
    if (peer < 0 || peer >= size()) {
      throw error{errc::bad_argument,
                  "mpi: rank " + std::to_string(rank()) + " names a peer " + std::to_string(peer) + " among " +
                      std::to_string(size()) + " ranks",
                  rank()};
    }
  }

  template <class Span, class F>
  void in_pieces(Span bytes, F f) const {
    for (std::size_t done = 0; done < bytes.size(); done += link_->largest) {
      f(bytes.data() + done, static_cast<int>(std::min(link_->largest, bytes.size() - done)));
    }
  }

  static void const* unless_there(host_span<std::byte const> mine, host_span<std::byte> own) {
    return mine.data() == own.data() ? MPI_IN_PLACE : mine.data();
  }

  template <class Sizes>
  void gather_by_ring(host_span<std::byte const> mine, host_span<std::byte> all, Sizes sizes) {
    collective::host_memory memory;
    collective::detail::block_walk const blocks{size(), rank(), sizes};
    collective::detail::copy_own(memory, mine, blocks.of(all));
    collective::detail::ring_gather(*this, memory, blocks, all);
  }

  std::shared_ptr<detail::link> link_;
};

/// MPI for the time of a scope: initialises it unless it runs already, and finalises it if so. Collective over all processes. A
/// rank that leaves the scope alone, by an exception of its own, waits for the others in MPI_Finalize: call MPI_Abort then.
/// Throws errc::bad_argument when MPI was finalised before.
class session {
 public:
  session() { begin(nullptr, nullptr); }
  session(int& argc, char**& argv) { begin(&argc, &argv); }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  ~session() {
    if (begun_ && !detail::is_finalized()) MPI_Finalize();
  }

  /// A duplicate of MPI_COMM_WORLD, a new one each time; collective. It may outlive the session, unused.
  [[nodiscard]] communicator world(options const& how = {}) const {
    return communicator::duplicate(MPI_COMM_WORLD, how);
  }

 private:
  void begin(int* argc, char*** argv) {
    if (detail::is_finalized())
      throw error{errc::bad_argument, "mpi: a session after MPI_Finalize; MPI starts once in a process"};
    if (detail::is_initialized()) return;
    int provided = 0;
    detail::check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    begun_ = true;
  }
  bool begun_ = false;
};

}  // namespace topsum::mpi

#endif
