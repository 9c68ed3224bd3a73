// SPDX-License-Identifier: BSL-1.0
/// \file
/// NCCL's and CUDA's calls with their errors as exceptions, and what a communicator's handles share. Includes `<nccl.h>`.
#ifndef TOPSUM_TRANSPORT_DETAIL_NCCL_CALLS_HPP
#define TOPSUM_TRANSPORT_DETAIL_NCCL_CALLS_HPP

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include <topsum/concepts.hpp>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/device_span.hpp>
#include <topsum/core/half.hpp>
#include <topsum/error.hpp>

namespace topsum::nccl {

/// The types that NCCL reduces itself; half formats as such.
template <class V>
concept reducible = std::same_as<V, float> || std::same_as<V, double> || std::same_as<V, std::uint32_t> ||
                    std::same_as<V, std::uint64_t> || std::same_as<V, half> || std::same_as<V, bfloat16> ||
                    std::same_as<V, __half> || std::same_as<V, __nv_bfloat16>;

namespace detail {

template <reducible V>
constexpr ncclDataType_t type_of() {
  if constexpr (std::same_as<V, float>) {
    return ncclFloat32;
  } else if constexpr (std::same_as<V, double>) {
    return ncclFloat64;
  } else if constexpr (std::same_as<V, std::uint32_t>) {
    return ncclUint32;
  } else if constexpr (std::same_as<V, std::uint64_t>) {
    return ncclUint64;
  } else if constexpr (std::same_as<V, half> || std::same_as<V, __half>) {
    return ncclFloat16;
  } else {
    return ncclBfloat16;
  }
}

/// Host messages of one group on their way: pinned memory, as much of the device's, sends before receives. Freed with the object, which
/// may wait for the device.
struct staging {
  std::byte* pinned = nullptr;
  std::byte* device = nullptr;
  std::size_t capacity = 0;
  cudaEvent_t arrived = nullptr;
  std::vector<host_span<std::byte>> receives;
  std::size_t first_receive = 0;  ///< byte where what is received begins

  staging() = default;
  staging(staging const&) = delete;
  staging& operator=(staging const&) = delete;
  ~staging() {
    if (pinned != nullptr) cudaFreeHost(pinned);
    if (device != nullptr) cudaFree(device);
    if (arrived != nullptr) cudaEventDestroy(arrived);
  }
};

/// What handles of one communicator share.
struct link {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  bool owned = false;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds time_limit{};
  std::string broken_by;  ///< empty while it works
  std::vector<std::unique_ptr<staging>> spare;
  std::vector<std::unique_ptr<staging>> given_up;  ///< perhaps still written to

  link() = default;
  link(link const&) = delete;
  link& operator=(link const&) = delete;
  ~link() {
    if (owned && comm != nullptr) ncclCommDestroy(comm);
    if (given_up.empty()) return;
    if (broken_by.empty() || owned) {  // an aborted communicator lets its stream go on
      cudaStreamSynchronize(stream);
    } else {  // the stream may never get there: the memory stays
      for (auto& one : given_up) static_cast<void>(one.release());
    }
  }

  /// Ends the communicator for good; an adopted one is the user's to abort.
  [[noreturn]] void fail(errc code, std::string const& what) {
    broken_by = topsum::detail::sentence("nccl: rank ", rank, " of ", size, ": ", what);
    if (owned && comm != nullptr) ncclCommAbort(std::exchange(comm, nullptr));
    throw error{code, broken_by, rank};
  }
  void expect_working() const {
    if (!broken_by.empty())
      throw error{errc::transport, "nccl: this communicator is of no use any more, after: " + broken_by, rank};
  }

  /// Memory for so many bytes of host messages, with nothing under way in it. Allocates where none is large enough. What is too small is
  /// kept: freeing it would wait for the device, without a time limit.
  [[nodiscard]] std::unique_ptr<staging> staging_of(std::size_t bytes) {
    for (auto& one : spare) {
      if (one->capacity < bytes) continue;
      std::swap(one, spare.back());
      auto mine = std::move(spare.back());
      spare.pop_back();
      return mine;
    }
    auto mine = std::make_unique<staging>();
    std::size_t const room = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    check(cudaEventCreateWithFlags(&mine->arrived, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaMallocHost(reinterpret_cast<void**>(&mine->pinned), room), "cudaMallocHost");
    check(cudaMalloc(reinterpret_cast<void**>(&mine->device), room), "cudaMalloc");
    mine->capacity = room;
    return mine;
  }

  /// What a call came to. One that is under way (non-blocking communicators) is waited for.
  void check(ncclResult_t code, char const* call) {
    if (code == ncclInProgress) {
      deadline const end{time_limit};
      do {
        ncclResult_t const asked = ncclCommGetAsyncError(comm, &code);
        if (asked != ncclSuccess) code = asked;
        if (code == ncclInProgress && end.has_passed())
          fail(errc::timeout, topsum::detail::sentence(call, " is still under way after ", time_limit.count(), " ms"));
      } while (code == ncclInProgress && (std::this_thread::yield(), true));
    }
    if (code != ncclSuccess) fail(errc::transport, topsum::detail::sentence(call, ": ", ncclGetErrorString(code)));
  }
  void check(cudaError_t code, char const* call) {
    if (code != cudaSuccess) fail(errc::transport, topsum::detail::sentence(call, ": ", cudaGetErrorString(code)));
  }

  /// Whether calls on the stream are being recorded for a graph.
  [[nodiscard]] bool is_captured() const noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
  }

  /// Throws what NCCL has found wrong since. Asks nothing while the stream is captured.
  void poll() {
    if (is_captured()) return;
    ncclResult_t state = ncclSuccess;
    ncclResult_t const asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress) fail(errc::transport, ncclGetErrorString(state));
  }

  /// Returns when the stream has passed an event; throws errc::timeout after the time limit.
  void await(cudaEvent_t event) {
    deadline const end{time_limit};
    for (;;) {
      cudaError_t const code = cudaEventQuery(event);
      if (code == cudaSuccess) return;
      if (code != cudaErrorNotReady) check(code, "cudaEventQuery");
      static_cast<void>(cudaGetLastError());  // "not ready" is no error: nobody else should find it
      poll();
      if (end.has_passed())
        fail(errc::timeout, topsum::detail::sentence("the stream waited ", time_limit.count(),
                                                     " ms for messages; a peer has not called, or is gone"));
      std::this_thread::yield();
    }
  }

 private:
  struct deadline {
    explicit deadline(std::chrono::milliseconds limit) : at{std::chrono::steady_clock::now() + limit} {}
    [[nodiscard]] bool has_passed() const { return std::chrono::steady_clock::now() >= at; }
    std::chrono::steady_clock::time_point at;
  };
};

/// An open group of NCCL's, which takes messages and throws nothing. Zero bytes are skipped.
struct open_group {
  link const& on;
  ncclResult_t first_fault = ncclSuccess;

  void send(int peer, device_span<std::byte const> bytes) {
    if (bytes.size() != 0) note(ncclSend(bytes.data(), bytes.size(), ncclUint8, peer, on.comm, on.stream));
  }
  void receive(int peer, device_span<std::byte> bytes) {
    if (bytes.size() != 0) note(ncclRecv(bytes.data(), bytes.size(), ncclUint8, peer, on.comm, on.stream));
  }

 private:
  void note(ncclResult_t code) {
    if (code != ncclInProgress && first_fault == ncclSuccess) first_fault = code;
  }
};

}  // namespace detail
}  // namespace topsum::nccl

#endif
