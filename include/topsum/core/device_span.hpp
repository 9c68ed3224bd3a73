// SPDX-License-Identifier: BSL-1.0
/// \file
/// A view of values in the memory of a CUDA device. Needs CUDA's headers, and no nvcc.
#ifndef TOPSUM_CORE_DEVICE_SPAN_HPP
#define TOPSUM_CORE_DEVICE_SPAN_HPP

#include <cstddef>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <topsum/core/memory.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// `size` values at a device address, which the host must not follow: no `[]`, no iterators, no conversion to `std::span`.
///
///     topsum::device_span<float> gradient{pointer_from_cudaMalloc, n};
template <class T>
class device_span {
 public:
  using element_type = T;

  constexpr device_span() = default;
  constexpr explicit device_span(T* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  template <class U>
    requires(std::is_same_v<U const, T> && !std::is_same_v<U, T>)
  constexpr device_span(device_span<U> from) noexcept : data_{from.data()}, size_{from.size()} {}

  /// The address, for CUDA's calls.
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  /// Number of values.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  /// `count` values from `first` on; both inside.
  [[nodiscard]] constexpr device_span subspan(std::size_t first, std::size_t count) const noexcept {
    return device_span{data_ + first, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// `local` moves device memory by CUDA's copies: on the calling thread's own stream, and done when it returns.
template <class T>
struct memory_access<device_span<T>> {
  static std::byte const* address(device_span<T> view) noexcept {
    return reinterpret_cast<std::byte const*>(view.data());
  }
  static std::byte* writable_address(device_span<T> view) noexcept
    requires(!std::is_const_v<T>)
  {
    return reinterpret_cast<std::byte*>(view.data());
  }
  static auto as_bytes(device_span<T> view) noexcept {
    using byte = std::conditional_t<std::is_const_v<T>, std::byte const, std::byte>;
    return device_span<byte>{reinterpret_cast<byte*>(view.data()), view.size() * sizeof(T)};
  }
  static void copy(std::byte* to, std::byte const* from, std::size_t bytes) {
    cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cudaStreamPerThread);
    if (code == cudaSuccess) code = cudaStreamSynchronize(cudaStreamPerThread);
    if (code != cudaSuccess)
      throw error{errc::transport, detail::sentence("device copy of ", bytes, " bytes: ", cudaGetErrorString(code))};
  }
};

}  // namespace topsum

#endif
