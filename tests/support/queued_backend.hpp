// SPDX-License-Identifier: BSL-1.0
// The three verbs that collectives need of a backend, over any span type. They are queued and run in `wait`, so that a collective
// that forgets to wait gives wrong bytes.
#ifndef TOPSUM_TESTS_SUPPORT_QUEUED_BACKEND_HPP
#define TOPSUM_TESTS_SUPPORT_QUEUED_BACKEND_HPP

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <topsum/core/memory.hpp>
#include <utility>
#include <vector>

namespace test {

// A view whose memory only `topsum::memory_access` reaches.
template <class T>
class boxed_span {
 public:
  boxed_span(T* data, std::size_t size) : data_{data}, size_{size} {}
  template <class U>
    requires std::is_convertible_v<U (*)[], T (*)[]>
  boxed_span(boxed_span<U> other) : data_{other.data_}, size_{other.size_} {}
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] boxed_span subspan(std::size_t begin, std::size_t count) const { return {data_ + begin, count}; }

 private:
  template <class U>
  friend class boxed_span;
  friend struct topsum::memory_access<boxed_span>;
  T* data_;
  std::size_t size_;
};

inline thread_local std::size_t boxed_copies = 0;

}  // namespace test

template <class T>
struct topsum::memory_access<test::boxed_span<T>> {
  static std::byte const* address(test::boxed_span<T> view) { return reinterpret_cast<std::byte const*>(view.data_); }
  static std::byte* writable_address(test::boxed_span<T> view)
    requires(!std::is_const_v<T>)
  {
    return reinterpret_cast<std::byte*>(view.data_);
  }
  static auto as_bytes(test::boxed_span<T> view) {
    using byte = std::conditional_t<std::is_const_v<T>, std::byte const, std::byte>;
    return test::boxed_span<byte>{reinterpret_cast<byte*>(view.data_), view.size_ * sizeof(T)};
  }
  static void copy(std::byte* to, std::byte const* from, std::size_t bytes) {
    ++test::boxed_copies;
    std::memcpy(to, from, bytes);
  }
};

namespace test {

template <template <class> class Span>
class queued_backend {
 public:
  template <class T>
  using span = Span<T>;

  template <class T>
  static Span<T> view(std::vector<T>& values) {
    return {values.data(), values.size()};
  }
  template <class T>
  static Span<T const> view(std::vector<T> const& values) {
    return {values.data(), values.size()};
  }

  void copy(Span<std::byte const> from, Span<std::byte> to) {
    queue_.push_back([=] { std::memcpy(address(to), address(from), from.size()); });
  }
  template <class F, class V>
  void for_each(std::size_t n, F f, Span<V> a, Span<V> b) {
    queue_.push_back([=] {
      auto* x = reinterpret_cast<V*>(address(a));
      auto* y = reinterpret_cast<V*>(address(b));
      for (std::size_t i = 0; i < n; ++i) f(i, x[i], y[i]);
    });
  }
  void wait() {
    for (auto& verb : queue_) verb();
    queue_.clear();
  }

 private:
  template <class T>
  static auto address(Span<T> view) {
    if constexpr (std::is_const_v<T>) {
      return topsum::memory_access<Span<T>>::address(view);
    } else {
      return topsum::memory_access<Span<T>>::writable_address(view);
    }
  }
  std::vector<std::function<void()>> queue_;
};

using queued_host = queued_backend<topsum::host_span>;
using queued_box = queued_backend<boxed_span>;

}  // namespace test

#endif
