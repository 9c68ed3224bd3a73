// SPDX-License-Identifier: BSL-1.0
// The archetype backend in CUDA's memory space: memory that the host reaches too (managed), verbs that a stream calls on the host. Over
// the real libraries, or over a stand-in for them (tests/nccl).
#ifndef TOPSUM_TESTS_SUPPORT_DEVICE_ARCHETYPE_HPP
#define TOPSUM_TESTS_SUPPORT_DEVICE_ARCHETYPE_HPP

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <topsum/core/device_span.hpp>
#include <topsum/transport/local.hpp>
#include <topsum/transport/nccl.hpp>
#include <utility>

#include "archetype_backend.hpp"

namespace test {

// A stream of CUDA's.
class cuda_stream {
 public:
  cuda_stream() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  cuda_stream(cuda_stream const&) = delete;
  cuda_stream& operator=(cuda_stream const&) = delete;
  ~cuda_stream() { cudaStreamDestroy(stream_); }
  [[nodiscard]] cudaStream_t native() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Verbs in the order of a stream.
class stream_queue {
 public:
  explicit stream_queue(cudaStream_t stream) : stream_{stream} {}
  void push(std::function<void()> verb) {
    auto run = [](void* data) {
      std::unique_ptr<std::function<void()>> const mine{static_cast<std::function<void()>*>(data)};
      (*mine)();
    };
    cudaLaunchHostFunc(stream_, run, new std::function<void()>{std::move(verb)});
  }
  void drain() { cudaStreamSynchronize(stream_); }

  template <class T>
  static std::span<T> inside(topsum::device_span<T> view) noexcept {
    return {view.data(), view.size()};
  }
  static std::shared_ptr<stream_queue> of_copy(std::shared_ptr<stream_queue> const& queue) { return queue; }

 private:
  cudaStream_t stream_;
};

// Owned memory of the device. Giving it back waits for the stream.
template <class T>
class device_buffer {
 public:
  device_buffer() = default;
  device_buffer(std::size_t n, std::shared_ptr<stream_queue> queue) : size_{n}, queue_{std::move(queue)} {
    void* at = nullptr;
    if (n != 0) cudaMallocManaged(&at, n * sizeof(T), cudaMemAttachGlobal);
    data_ = static_cast<T*>(at);
  }
  device_buffer(device_buffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        queue_{std::move(other.queue_)} {}
  device_buffer& operator=(device_buffer&& other) noexcept {
    device_buffer old{std::move(*this)};
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~device_buffer() {
    if (data_ == nullptr) return;
    queue_->drain();
    cudaFree(data_);
  }
  [[nodiscard]] topsum::device_span<T> view() noexcept { return topsum::device_span<T>{data_, size_}; }
  [[nodiscard]] topsum::device_span<T const> view() const noexcept {
    return topsum::device_span<T const>{data_, size_};
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<stream_queue> queue_;
};

// The archetype in CUDA's memory space, on a stream.
using device_archetype = basic_archetype<topsum::device_span, device_buffer, stream_queue>;

// A rank's stream, its backend and its NCCL communicator.
class nccl_seat {
 public:
  explicit nccl_seat(topsum::local::communicator& comm, topsum::nccl::options const& how = {})
      : transport_{topsum::nccl::communicator::create(comm, stream_.native(), how)} {}
  [[nodiscard]] topsum::nccl::communicator transport() const { return transport_; }
  [[nodiscard]] device_archetype backend() const {
    return device_archetype{std::make_shared<stream_queue>(stream_.native())};
  }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.native(); }

 private:
  cuda_stream stream_;
  topsum::nccl::communicator transport_;
};

// The same without NCCL: ranks as threads share the device.
class shared_device_seat {
 public:
  explicit shared_device_seat(topsum::local::communicator& comm) : comm_{comm} {}
  [[nodiscard]] topsum::local::communicator transport() const { return comm_; }
  [[nodiscard]] device_archetype backend() const {
    return device_archetype{std::make_shared<stream_queue>(stream_.native())};
  }

 private:
  cuda_stream stream_;
  topsum::local::communicator comm_;
};

// Where the laws of exchanges run, for `topsum::laws::exchange`.
struct over_nccl {
  using stage_tag = topsum::backend_tag;
  [[nodiscard]] nccl_seat sit(topsum::local::communicator& comm) const { return nccl_seat{comm}; }
};
struct over_shared_device {
  using stage_tag = topsum::backend_tag;
  [[nodiscard]] shared_device_seat sit(topsum::local::communicator& comm) const { return shared_device_seat{comm}; }
};

}  // namespace test

#endif
