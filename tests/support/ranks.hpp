// SPDX-License-Identifier: BSL-1.0
// Ranks as threads whose findings come home to the test's thread.
#ifndef TOPSUM_TESTS_SUPPORT_RANKS_HPP
#define TOPSUM_TESTS_SUPPORT_RANKS_HPP

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <topsum/core/value.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/local.hpp>
#include <utility>
#include <vector>

namespace test {

// How a call ended on one rank.
struct ending {
  topsum::errc code = topsum::errc::none;
  int rank = -1;
  std::string what;

  [[nodiscard]] bool says(std::string const& part) const { return what.find(part) != std::string::npos; }
};

// Calls f and tells how it ended.
template <class F>
ending ending_of(F&& f) {
  try {
    std::forward<F>(f)();
    return {};
  } catch (topsum::error const& e) {
    return {e.code(), e.rank(), e.what()};
  } catch (std::exception const& e) {
    return {topsum::errc::none, -2, e.what()};
  }
}

// How f(communicator) ended on every rank.
template <class F>
std::vector<ending> endings(int ranks, F f, std::chrono::milliseconds limit = std::chrono::seconds{20}) {
  topsum::local::options how;
  how.time_limit = limit;
  return topsum::local::run(
      ranks, [&](topsum::local::communicator& comm) { return ending_of([&] { f(comm); }); }, how);
}

template <class T>
std::vector<std::byte> bytes_of(std::vector<T> const& values) {
  auto const view = std::as_bytes(std::span{values});
  return {view.begin(), view.end()};
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](T x, T y) {
    return std::bit_cast<topsum::bits_t<T>>(x) == std::bit_cast<topsum::bits_t<T>>(y);
  });
}

}  // namespace test

#endif
