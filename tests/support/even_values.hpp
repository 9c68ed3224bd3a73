// SPDX-License-Identifier: BSL-1.0
// A lossy value codec whose losses are exact: integers become even ones. Conservation can then be tested to the last bit.
#ifndef TOPSUM_TESTS_SUPPORT_EVEN_VALUES_HPP
#define TOPSUM_TESTS_SUPPORT_EVEN_VALUES_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/codec/as.hpp>
#include <topsum/core/stage.hpp>

namespace test {

struct even_values {
  using stage_tag = topsum::value_codec_tag;
  static constexpr std::string_view name = "even_values";
  static constexpr bool lossless = false;
  template <class R>
  using header = topsum::no_header;
  template <class R>
  static constexpr int bits = 16;

  void validate() const noexcept {}
  template <class R>
  topsum::no_header summarise(R const*, std::size_t) const noexcept {
    return {};
  }
  template <class R>
  std::uint64_t code(topsum::no_header, R value, std::uint64_t) const noexcept {
    return static_cast<std::uint16_t>(static_cast<std::int16_t>(value / 2));
  }
  template <class R>
  R value(topsum::no_header, std::uint64_t code) const noexcept {
    return static_cast<R>(2 * static_cast<std::int16_t>(static_cast<std::uint16_t>(code)));
  }
};

}  // namespace test

#endif
