// SPDX-License-Identifier: BSL-1.0
#include <topsum/backend/host.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace {

// Fills a stretch that begins `skip` elements into memory, and checks it and what lies around it.
template <class T>
void check_fill(std::size_t size, std::size_t skip, T value) {
  topsum::host backend;
  std::vector<T> memory(size + skip + 3, T{1});
  backend.fill(std::span{memory}.subspan(skip, size), value);
  auto const at = [&](std::size_t i) { return memory.begin() + static_cast<std::ptrdiff_t>(i); };
  CHECK(std::all_of(at(0), at(skip), [](T x) { return x == T{1}; }));
  CHECK(std::all_of(at(skip), at(skip + size), [value](T x) { return x == value; }));
  CHECK(std::all_of(at(skip + size), memory.end(), [](T x) { return x == T{1}; }));
}

}  // namespace

TEST_CASE_TEMPLATE("fill sets every element and none beside it, through and past the caches", T, float, double,
                   std::uint32_t, std::uint64_t, unsigned char) {
  std::size_t const streamed = topsum::detail::streamed_fill_bytes / sizeof(T);
  for (std::size_t const size :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, streamed - 1, streamed, streamed + 1, streamed + 77}) {
    for (std::size_t const skip : {0U, 1U, 5U, 16U}) check_fill<T>(size, skip, T{3});
  }
}
