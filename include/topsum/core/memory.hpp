// SPDX-License-Identifier: BSL-1.0
/// \file
/// Where data live. A view's type says its memory space; a transport and a backend name the views they take.
#ifndef TOPSUM_CORE_MEMORY_HPP
#define TOPSUM_CORE_MEMORY_HPP

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace topsum {

/// A view of values in memory that the calling thread can touch.
template <class T>
using host_span = std::span<T>;

/// How a transport that copies by itself reaches the memory behind a view: specialise it for a memory
/// space of your own. `as_bytes` views the same memory as bytes, const where the values are. Optional:
/// `static void copy(std::byte* to, std::byte const* from, std::size_t bytes)`, where std::memcpy will not do.
template <class Span>
struct memory_access;

template <class T>
struct memory_access<std::span<T>> {
  static std::byte const* address(std::span<T> view) noexcept {
    return reinterpret_cast<std::byte const*>(view.data());
  }
  static std::byte* writable_address(std::span<T> view) noexcept
    requires(!std::is_const_v<T>)
  {
    return reinterpret_cast<std::byte*>(view.data());
  }
  static auto as_bytes(std::span<T> view) noexcept {
    if constexpr (std::is_const_v<T>) {
      return host_span<std::byte const>{std::as_bytes(view)};
    } else {
      return host_span<std::byte>{std::as_writable_bytes(view)};
    }
  }
};

/// Owned values in host memory, aligned to a cache line and *not initialised*: pages that nobody touches cost nothing.
template <class T>
class host_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  host_buffer() = default;
  /// `size` values, uninitialised. Throws std::bad_alloc.
  explicit host_buffer(std::size_t size)
      : data_{size == 0 ? nullptr : static_cast<T*>(::operator new(bytes(size), std::align_val_t{alignment}))},
        size_{size} {}

  [[nodiscard]] host_span<T> view() noexcept { return {data_.get(), size_}; }
  [[nodiscard]] host_span<T const> view() const noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t alignment = 64;
  static std::size_t bytes(std::size_t size) {
    if (size > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length{};
    return size * sizeof(T);
  }
  struct release {
    void operator()(T* p) const noexcept { ::operator delete(p, std::align_val_t{alignment}); }
  };
  std::unique_ptr<T, release> data_;
  std::size_t size_ = 0;
};

}  // namespace topsum

#endif
