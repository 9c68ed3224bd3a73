// SPDX-License-Identifier: BSL-1.0
/// \file
/// Ranks with a GPU each, over NCCL. Device memory, in the order of a stream; g++ and clang++ compile it, there are no kernels.
///
///     auto ranks = topsum::nccl::communicator::create(mpi_ranks, stream);   // any transport carries the id round
///     auto same = topsum::nccl::communicator::adopt(my_ncclComm, stream);   // of a communicator that you have
///
/// Native verbs: start, finish (groups of ncclSend and ncclRecv), all_gather, all_gather_v, all_to_all, all_to_all_v, all_reduce,
/// broadcast. They are enqueued on the stream and return; the host waits only for *host* messages, the few hundred bytes of headers and
/// counts with which a plan checks that ranks agree: those are staged through pinned memory.
///
/// Faults: what NCCL reports, in the call or in a later one, is thrown as errc::transport; a peer that does not come, as errc::timeout by
/// the next host message. Then the communicator is aborted if it is ours, and of no use any more; an adopted one is the user's to abort.
/// NCCL itself does not notice messages of another size than expected. Works with NCCL 2.18 and later.
#ifndef TOPSUM_TRANSPORT_NCCL_HPP
#define TOPSUM_TRANSPORT_NCCL_HPP

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <topsum/concepts.hpp>
#include <topsum/core/device_span.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/detail/nccl_calls.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum::nccl {

/// How long to wait.
struct options {
  /// For the stream to reach a host message, and for NCCL calls of non-blocking communicators; at least 1 ms.
  std::chrono::milliseconds time_limit = std::chrono::minutes{5};
};

/// Handle of an NCCL communicator and a stream; cheap to copy. Both outlive the last handle if they are the user's. Calls come from
/// one thread at a time, while the communicator's device is current, and those of collectives in the same order on every rank.
/// Host messages allocate until groups of their size have been seen; nothing else does, except inside NCCL.
class communicator {
 public:
  static constexpr bool stream_ordered = true;
  /// Host memory is staged: messages of a plan's headers, not its data (`reaches`).
  static constexpr bool stages_host_memory = true;

  /// A started group. Move-only. Destroyed before `finish`, it lets the messages travel, and forgets what they bring.
  class ticket {
   public:
    ticket() = default;
    ticket(ticket&&) noexcept = default;
    ticket& operator=(ticket&& other) noexcept {
      ticket old{std::move(*this)};
      link_ = std::move(other.link_);
      staged_ = std::move(other.staged_);
      return *this;
    }
    ~ticket() {
      if (staged_) link_->given_up.push_back(std::move(staged_));
    }

   private:
    friend class communicator;
    std::shared_ptr<detail::link> link_;
    std::unique_ptr<detail::staging> staged_;
  };

  /// A communicator of topsum's own, over the ranks of another transport, which carries NCCL's id round. Collective; the device is
  /// the current one, another for each rank. Destroyed with its last handle. Throws errc::transport for what NCCL or CUDA reports.
  template <transport Ranks>
    requires can_send_recv<Ranks>
  [[nodiscard]] static communicator create(Ranks& ranks, cudaStream_t stream, options const& how = {}) {
    auto link = std::make_shared<detail::link>();
    link->time_limit = limit_of(how);
    struct {
      ncclResult_t state = ncclSuccess;
      ncclUniqueId id{};
    } told;
    if (ranks.rank() == 0) told.state = ncclGetUniqueId(&told.id);
    collective::host_memory memory;
    collective::broadcast(ranks, memory, std::as_writable_bytes(std::span{&told, 1}), 0);
    link->rank = ranks.rank();
    link->size = ranks.size();
    if (told.state != ncclSuccess)
      link->fail(errc::transport, topsum::detail::sentence("ncclGetUniqueId: ", ncclGetErrorString(told.state)));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a peer that does not come must not keep us for ever
    ncclResult_t const state = ncclCommInitRankConfig(&link->comm, link->size, told.id, link->rank, &config);
    link->owned = true;
    link->check(state, "ncclCommInitRankConfig");
    return communicator{std::move(link), stream};
  }
  /// The user's communicator as it is, blocking or not, which stays the user's: it outlives the last handle. Local. Throws
  /// errc::bad_argument for a null communicator, another device than the current one, and a time limit below 1 ms.
  [[nodiscard]] static communicator adopt(ncclComm_t ranks, cudaStream_t stream, options const& how = {}) {
    if (ranks == nullptr)
      throw error{errc::bad_argument, "nccl: communicator::adopt: a null pointer is no communicator"};
    auto link = std::make_shared<detail::link>();
    link->comm = ranks;
    link->time_limit = limit_of(how);
    ncclResult_t state = ncclSuccess;  // a non-blocking one may still be joining, and answers nothing else until it has
    ncclResult_t const asked = ncclCommGetAsyncError(ranks, &state);
    link->check(asked != ncclSuccess ? asked : state, "ncclCommGetAsyncError");
    link->check(ncclCommUserRank(ranks, &link->rank), "ncclCommUserRank");
    link->check(ncclCommCount(ranks, &link->size), "ncclCommCount");
    return communicator{std::move(link), stream};
  }

  [[nodiscard]] int rank() const noexcept { return link_->rank; }
  [[nodiscard]] int size() const noexcept { return link_->size; }
  /// NCCL's handle, still owned as before; null once it has been aborted.
  [[nodiscard]] ncclComm_t native() const noexcept { return link_->comm; }
  /// Where messages are enqueued.
  [[nodiscard]] cudaStream_t stream() const noexcept { return link_->stream; }

  /// Enqueues a group of messages between device memories and returns. Memory belongs to the stream from here on.
  [[nodiscard]] ticket start(std::span<transfer<device_span<std::byte const>> const> sends,
                             std::span<transfer<device_span<std::byte>> const> receives) {
    expect_ranks(sends, receives);
    in_group([&](detail::open_group& group) {
      for (auto const& [peer, bytes] : sends) group.send(peer, bytes);
      for (auto const& [peer, bytes] : receives) group.receive(peer, bytes);
    });
    return {};
  }
  /// A group of messages between host memories, staged; sends are taken at once.
  [[nodiscard]] ticket start(std::span<transfer<host_span<std::byte const>> const> sends,
                             std::span<transfer<host_span<std::byte>> const> receives);

  /// Of a group of device memories: throws what NCCL reports, does not wait. Of host memories: returns when all have arrived; throws
  /// errc::timeout. An empty ticket is done already.
  void finish(ticket& started);

  /// `collective::all_gather`, by ncclAllGather.
  void all_gather(device_span<std::byte const> mine, device_span<std::byte> all) {
    call([&] { return ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, link_->comm, link_->stream); },
         "ncclAllGather", mine.size());
  }
  /// `collective::all_gather_v`: one group, a message to and from each peer.
  void all_gather_v(device_span<std::byte const> mine, device_span<std::byte> all, host_span<std::size_t const> sizes) {
    link_->expect_working();
    auto const each_block = [&](auto f) {
      for (std::size_t begin = 0, r = 0; r < sizes.size(); begin += sizes[r++])
        f(static_cast<int>(r), all.subspan(begin, sizes[r]));
    };
    each_block([&](int r, device_span<std::byte> block) {
      if (r == rank()) keep_own(mine, block);
    });
    in_group([&](detail::open_group& group) {
      each_block([&](int r, device_span<std::byte> block) {
        if (r == rank()) return;
        group.send(r, mine);
        group.receive(r, block);
      });
    });
  }
  /// `collective::all_to_all`, in one group.
  void all_to_all(device_span<std::byte const> from, device_span<std::byte> to) {
    std::size_t const block = from.size() / index(size());
    swap_blocks([&](auto f) {
      for (std::size_t r = 0; r < index(size()); ++r)
        f(static_cast<int>(r), from.subspan(r * block, block), to.subspan(r * block, block));
    });
  }
  /// `collective::all_to_all_v`, in one group.
  void all_to_all_v(device_span<std::byte const> from, host_span<std::size_t const> from_sizes,
                    device_span<std::byte> to, host_span<std::size_t const> to_sizes) {
    swap_blocks([&](auto f) {
      for (std::size_t r = 0, out = 0, in = 0; r < from_sizes.size(); out += from_sizes[r], in += to_sizes[r], ++r)
        f(static_cast<int>(r), from.subspan(out, from_sizes[r]), to.subspan(in, to_sizes[r]));
    });
  }
  /// Elementwise over ranks, in place, by ncclAllReduce: the same bits on every rank; from run to run with as many ranks on the same
  /// machines with the same algorithm (NCCL_ALGO).
  template <reducible V>
  void all_reduce(device_span<V> values, combine how) {
    call(
        [&] {
          return ncclAllReduce(values.data(), values.data(), values.size(), detail::type_of<V>(),
                               how == combine::sum ? ncclSum : ncclMax, link_->comm, link_->stream);
        },
        "ncclAllReduce", values.size());
  }
  /// The root's bytes, on every rank, by ncclBroadcast. Throws errc::bad_argument for a root that is no rank.
  void broadcast(device_span<std::byte> bytes, int root) {
    expect_rank(root);
    call(
        [&] {
          return ncclBroadcast(bytes.data(), bytes.data(), bytes.size(), ncclUint8, root, link_->comm, link_->stream);
        },
        "ncclBroadcast", bytes.size());
  }

 private:
  communicator(std::shared_ptr<detail::link> link, cudaStream_t stream) : link_{std::move(link)} {
    int device = 0;
    int ours = 0;
    link_->check(ncclCommCuDevice(link_->comm, &device), "ncclCommCuDevice");
    link_->check(cudaGetDevice(&ours), "cudaGetDevice");
    if (device != ours)
      throw error{errc::bad_argument,
                  topsum::detail::sentence("nccl: the communicator is of device ", device, ", the current device is ",
                                           ours, "; call cudaSetDevice(", device, ") first")};
    link_->stream = stream;
  }

  static std::chrono::milliseconds limit_of(options const& how) {
    if (how.time_limit < std::chrono::milliseconds{1})
      throw error{errc::bad_argument, "nccl: .time_limit is below 1 ms; write how long a peer may keep us waiting"};
    return how.time_limit;
  }
  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

  void expect_rank(int peer) const {
    if (peer < 0 || peer >= size())
      throw error{errc::bad_argument,
                  topsum::detail::sentence("nccl: rank ", rank(), " names a peer ", peer, " among ", size(), " ranks"),
                  rank()};
  }

  template <class Call>
  void call(Call one, char const* name, std::size_t size) {
    link_->expect_working();
    if (size != 0) link_->check(one(), name);
  }

  template <class Sends, class Receives>
  void expect_ranks(Sends const& sends, Receives const& receives) const {
    for (auto const& one : sends) expect_rank(one.peer);
    for (auto const& one : receives) expect_rank(one.peer);
  }

  /// What `messages(group)` posts travels together. It must not throw, nor abort the communicator: NCCL remembers it until the group
  /// ends.
  template <class Messages>
  void in_group(Messages messages) {
    link_->expect_working();
    link_->check(ncclGroupStart(), "ncclGroupStart");
    detail::open_group group{*link_};
    messages(group);
    ncclResult_t const ended = ncclGroupEnd();
    link_->check(group.first_fault, "ncclSend or ncclRecv");
    link_->check(ended, "ncclGroupEnd");
  }
  /// `each(f)` calls f(rank, what goes there, where to put what comes from there) for every rank.
  template <class Each>
  void swap_blocks(Each each) {
    link_->expect_working();
    each([&](int r, device_span<std::byte const> out, device_span<std::byte> in) {
      if (r == rank()) keep_own(out, in);
    });
    in_group([&](detail::open_group& group) {
      each([&](int r, device_span<std::byte const> out, device_span<std::byte> in) {
        if (r == rank()) return;
        group.send(r, out);
        group.receive(r, in);
      });
    });
  }
  void keep_own(device_span<std::byte const> from, device_span<std::byte> to) {
    if (from.size() == 0 || from.data() == to.data()) return;
    link_->check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, link_->stream),
                 "cudaMemcpyAsync");
  }
  std::shared_ptr<detail::link> link_;
};

inline communicator::ticket communicator::start(std::span<transfer<host_span<std::byte const>> const> sends,
                                                std::span<transfer<host_span<std::byte>> const> receives) {
  link_->expect_working();
  if (link_->is_captured())
    throw error{
        errc::bad_argument,
        "nccl: host messages while the stream is captured; a plan's step waits for its headers, so capture only what "
        "has device memory"};
  expect_ranks(sends, receives);
  std::size_t out = 0;
  std::size_t in = 0;
  for (auto const& one : sends) out += one.bytes.size();
  for (auto const& one : receives) in += one.bytes.size();
  ticket posted;
  posted.link_ = link_;
  posted.staged_ = link_->staging_of(out + in);
  detail::staging& staged = *posted.staged_;
  staged.first_receive = out;
  staged.receives.clear();
  for (auto const& one : receives) staged.receives.push_back(one.bytes);

  std::size_t at = 0;
  for (auto const& one : sends) {
    if (one.bytes.size() != 0) std::memcpy(staged.pinned + at, one.bytes.data(), one.bytes.size());
    at += one.bytes.size();
  }
  if (out != 0)
    link_->check(cudaMemcpyAsync(staged.device, staged.pinned, out, cudaMemcpyHostToDevice, link_->stream),
                 "cudaMemcpyAsync");
  device_span<std::byte> const whole{staged.device, out + in};
  in_group([&](detail::open_group& group) {
    at = 0;
    auto const next = [&](std::size_t size) { return whole.subspan(std::exchange(at, at + size), size); };
    for (auto const& [peer, bytes] : sends) group.send(peer, next(bytes.size()));
    for (auto const& [peer, bytes] : receives) group.receive(peer, next(bytes.size()));
  });
  if (in != 0)
    link_->check(cudaMemcpyAsync(staged.pinned + out, staged.device + out, in, cudaMemcpyDeviceToHost, link_->stream),
                 "cudaMemcpyAsync");
  link_->check(cudaEventRecord(staged.arrived, link_->stream), "cudaEventRecord");
  return posted;
}

inline void communicator::finish(ticket& started) {
  link_->expect_working();
  if (!started.staged_) return link_->poll();
  ticket mine = std::move(started);  // given up if this throws
  detail::staging& staged = *mine.staged_;
  link_->await(staged.arrived);
  std::size_t at = staged.first_receive;
  for (auto const& bytes : staged.receives) {
    if (bytes.size() != 0) std::memcpy(bytes.data(), staged.pinned + at, bytes.size());
    at += bytes.size();
  }
  link_->spare.push_back(std::move(mine.staged_));
}

}  // namespace topsum::nccl

#endif
