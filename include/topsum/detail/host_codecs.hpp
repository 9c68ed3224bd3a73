// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host's coding verbs: runs of bits, Elias-Fano, bitmaps, quantised values. Words at a time, no byte outside the message.
#ifndef TOPSUM_DETAIL_HOST_CODECS_HPP
#define TOPSUM_DETAIL_HOST_CODECS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <topsum/codec/index_codes.hpp>
#include <topsum/core/memory.hpp>

namespace topsum::detail {

static_assert(std::endian::native == std::endian::little,
              "topsum: coded messages are written for little-endian machines");

/// Appends numbers of up to 64 bits, the lowest bit first.
class bit_writer {
 public:
  explicit bit_writer(std::byte* to) noexcept : to_{to} {}

  /// The low `width` bits of `value`, which has no others.
  void put(std::uint64_t value, int width) noexcept {
    word_ |= value << used_;
    used_ += width;
    if (used_ < 64) return;
    std::memcpy(to_, &word_, sizeof word_);
    to_ += sizeof word_;
    used_ -= 64;
    word_ = used_ == 0 ? 0 : value >> (width - used_);
  }
  /// Writes what is left, zeros behind it in the last byte.
  void finish() noexcept { std::memcpy(to_, &word_, static_cast<std::size_t>(used_ + 7) / 8); }

 private:
  std::byte* to_;
  std::uint64_t word_ = 0;
  int used_ = 0;  // below 64
};

/// Writes `number(i)` for i < count, `width` bits each, 0 < width <= 64. Whole words are written as long as they lie in the message,
/// which has `bytes_for(count * width)` bytes.
template <class F>
[[gnu::always_inline]] inline void put_numbers(std::byte* to, std::size_t count, int width, F number) noexcept {
  std::size_t i = 0;
  std::uint64_t word = 0;
  int used = 0;  // below 8 between numbers
  std::size_t const size = bytes_for(count * static_cast<std::size_t>(width));
  if (width <= 56 && size >= 8) {
    std::size_t const fast = std::min(count, ((size - 8) * 8 + 7) / static_cast<std::size_t>(width));
    for (; i < fast; ++i) {
      word |= number(i) << used;
      used += width;
      std::memcpy(to, &word, sizeof word);
      to += used / 8;
      word >>= used & ~7;
      used &= 7;
    }
  }
  bit_writer rest{to};
  rest.put(word, used);
  for (; i < count; ++i) rest.put(number(i), width);
  rest.finish();
}

/// 64 bits from byte `at` of a message, zeros behind its end.
[[nodiscard]] inline std::uint64_t word_at(std::byte const* from, std::size_t size, std::size_t at) noexcept {
  std::uint64_t word = 0;
  if (at + sizeof word <= size) [[likely]] {
    std::memcpy(&word, from + at, sizeof word);
  } else if (at < size) {
    std::memcpy(&word, from + at, size - at);
  }
  return word;
}

/// Number `i` of `width` bits each, 0 < width <= 64; zeros behind the end.
[[nodiscard]] inline std::uint64_t bits_at(std::byte const* from, std::size_t size, std::size_t i, int width) noexcept {
  std::size_t const bit = i * static_cast<std::size_t>(width);
  int const shift = static_cast<int>(bit % 8);
  std::uint64_t number = word_at(from, size, bit / 8) >> shift;
  if (shift + width > 64) number |= word_at(from, size, bit / 8 + 8) << (64 - shift);
  return width == 64 ? number : number & ((std::uint64_t{1} << width) - 1);
}

template <class I>
void encode_bits(host_span<I const> indices, std::size_t first, int width, std::byte* to) noexcept {
  if (width == 0) return;
  I const* const from = indices.data();
  put_numbers(to, indices.size(), width, [from, first](std::size_t i) { return std::uint64_t{from[i]} - first; });
}

/// Calls `f(i, number)` for `count` numbers of `width` bits. Whole words are read as long as they lie in the message.
template <class F>
[[gnu::always_inline]] inline void each_number(std::byte const* from, std::size_t size, std::size_t count, int width,
                                               F f) noexcept {
  std::size_t i = 0;
  if (width <= 56 && size >= 8) {
    std::size_t const fast = std::min(count, ((size - 8) * 8 + 7) / static_cast<std::size_t>(width));
    std::uint64_t const mask = (std::uint64_t{1} << width) - 1;
    std::size_t bit = 0;
    for (; i < fast; ++i, bit += static_cast<std::size_t>(width)) {
      std::uint64_t word;
      std::memcpy(&word, from + bit / 8, sizeof word);
      f(i, word >> bit % 8 & mask);
    }
  }
  for (; i < count; ++i) f(i, bits_at(from, size, i, width));
}

template <class I>
void decode_bits(host_span<std::byte const> from, std::size_t first, int width, host_span<I> indices) noexcept {
  if (width == 0) {
    std::fill(indices.begin(), indices.end(), static_cast<I>(first));
    return;
  }
  I* const to = indices.data();
  each_number(from.data(), from.size(), indices.size(), width,
              [to, first](std::size_t i, std::uint64_t number) { to[i] = static_cast<I>(first + number); });
}

/// Upper halves in unary: bit (upper + i) is set for entry i; lower halves behind them.
template <class I>
void encode_elias_fano(host_span<I const> indices, std::size_t first, elias_fano_shape shape, std::byte* to) noexcept {
  std::memset(to, 0, shape.upper_bytes());
  std::uint64_t word = 0;
  std::size_t at = 0;  // the word's place
  std::size_t entry = 0;
  for (I const index : indices) {
    std::uint64_t const value = std::uint64_t{index} - first;
    std::size_t const bit = static_cast<std::size_t>(value >> shape.low) + entry++;
    if (bit / 64 != at) {
      std::memcpy(to + at * 8, &word, std::min(sizeof word, shape.upper_bytes() - at * 8));
      word = 0;
      at = bit / 64;
    }
    word |= std::uint64_t{1} << bit % 64;
  }
  if (!indices.empty()) std::memcpy(to + at * 8, &word, std::min(sizeof word, shape.upper_bytes() - at * 8));
  if (shape.low == 0) return;
  std::uint64_t const mask = (std::uint64_t{1} << shape.low) - 1;
  I const* const from = indices.data();
  put_numbers(to + shape.upper_bytes(), indices.size(), shape.low,
              [from, first, mask](std::size_t i) { return (std::uint64_t{from[i]} - first) & mask; });
}

/// Bytes with fewer upper halves than entries repeat the last index, which no check lets pass.
template <class I>
void decode_elias_fano(host_span<std::byte const> from, std::size_t first, elias_fano_shape shape,
                       host_span<I> indices) noexcept {
  std::size_t const upper = std::min(shape.upper_bytes(), from.size());
  std::byte const* const lower = from.data() + upper;
  std::size_t const lower_size = from.size() - upper;
  I* const to = indices.data();
  std::size_t const count = indices.size();
  if (shape.low == 0) {
    std::fill_n(to, count, static_cast<I>(first));
  } else {
    each_number(lower, lower_size, count, shape.low,
                [to, first](std::size_t i, std::uint64_t low) { to[i] = static_cast<I>(first + low); });
  }
  std::size_t i = 0;
  for (std::size_t at = 0; at < upper && i < count; at += 8) {
    std::uint64_t word = word_at(from.data(), upper, at);
    auto const here = static_cast<std::size_t>(std::popcount(word));
    std::size_t const end = std::min(count, i + here);
    for (std::uint64_t base = at * 8; i < end; ++i, word &= word - 1)
      to[i] = static_cast<I>(to[i] + ((base + static_cast<std::size_t>(std::countr_zero(word)) - i) << shape.low));
  }
  I const last = i == 0 ? I{0} : indices[i - 1];
  std::fill(indices.begin() + static_cast<std::ptrdiff_t>(i), indices.end(), last);
}

template <class I>
void encode_bitmap(host_span<I const> indices, std::size_t first, host_span<std::byte> to) noexcept {
  if (!to.empty()) std::memset(to.data(), 0, to.size());
  for (I const index : indices) {
    std::size_t const bit = static_cast<std::size_t>(index) - first;
    to[bit / 8] |= std::byte{1} << static_cast<int>(bit % 8);
  }
}

/// The first set bits. With fewer of them than entries the last index is repeated, with more it is one that cannot be: no check lets
/// them pass.
template <class I>
void decode_bitmap(host_span<std::byte const> from, std::size_t first, host_span<I> indices) noexcept {
  std::size_t i = 0;
  bool surplus = false;
  for (std::size_t at = 0; at < from.size() && !surplus; at += 8) {
    for (std::uint64_t word = word_at(from.data(), from.size(), at); word != 0; word &= word - 1) {
      surplus = i == indices.size();
      if (surplus) break;
      indices[i++] = static_cast<I>(first + at * 8 + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }
  I const last = i == 0 ? I{0} : indices[i - 1];
  std::fill(indices.begin() + static_cast<std::ptrdiff_t>(i), indices.end(), last);
  if (!surplus || indices.empty()) return;
  indices.back() = indices.size() > 1 ? indices.front() : static_cast<I>(first == 0 ? from.size() * 8 : first - 1);
}

template <int width>
inline constexpr bool is_whole_bytes = width == 8 || width == 16 || width == 32 || width == 64;
template <int width>
using code_of = std::conditional_t<
    width == 8, std::uint8_t,
    std::conditional_t<width == 16, std::uint16_t, std::conditional_t<width == 32, std::uint32_t, std::uint64_t>>>;

/// A value codec's header, then its codes.
template <class I, class R, class Values>
void quantise(host_span<I const> indices, host_span<R const> values, Values const& codec, std::byte* to) noexcept {
  using header_type = typename Values::template header<R>;
  constexpr int width = Values::template bits<R>;
  header_type const header = codec.template summarise<R>(values.data(), values.size());
  if constexpr (!std::is_empty_v<header_type>) {
    std::memcpy(to, &header, sizeof header);
    to += sizeof header;
  }
  if constexpr (is_whole_bytes<width>) {
    using number = code_of<width>;
    std::array<number, 256> codes;
    for (std::size_t first = 0; first < values.size(); first += codes.size()) {
      std::size_t const n = std::min(codes.size(), values.size() - first);
      for (std::size_t i = 0; i < n; ++i)
        codes[i] = static_cast<number>(codec.template code<R>(header, values[first + i], indices[first + i]));
      std::memcpy(to + first * sizeof(number), codes.data(), n * sizeof(number));
    }
  } else {
    put_numbers(to, values.size(), width,
                [&](std::size_t i) { return codec.template code<R>(header, values[i], indices[i]); });
  }
}

template <class R, class Values>
void dequantise(host_span<std::byte const> from, Values const& codec, host_span<R> values) noexcept {
  using header_type = typename Values::template header<R>;
  constexpr int width = Values::template bits<R>;
  header_type header{};
  std::byte const* data = from.data();
  std::size_t size = from.size();
  if constexpr (!std::is_empty_v<header_type>) {
    std::size_t const bytes = std::min(sizeof header, size);
    if (bytes != 0) std::memcpy(&header, data, bytes);
    data += bytes;
    size -= bytes;
  }
  R* const to = values.data();
  if constexpr (is_whole_bytes<width>) {
    using number = code_of<width>;
    assert(values.size() * sizeof(number) <= size);
    std::array<number, 256> codes;
    for (std::size_t first = 0; first < values.size(); first += codes.size()) {
      std::size_t const n = std::min(codes.size(), values.size() - first);
      std::memcpy(codes.data(), data + first * sizeof(number), n * sizeof(number));
      for (std::size_t i = 0; i < n; ++i) to[first + i] = codec.template value<R>(header, codes[i]);
    }
  } else {
    each_number(data, size, values.size(), width,
                [&](std::size_t i, std::uint64_t code) { to[i] = codec.template value<R>(header, code); });
  }
}

/// The coding verbs, see `coding_backend`.
class host_coding_verbs {
 public:
  template <class I>
  void encode_bits(host_span<I const> indices, std::size_t first, int width, host_span<std::byte> out) {
    detail::encode_bits(indices, first, width, out.data());
  }
  template <class I>
  void decode_bits(host_span<std::byte const> in, std::size_t first, int width, host_span<I> indices) {
    detail::decode_bits(in, first, width, indices);
  }
  template <class I>
  void encode_elias_fano(host_span<I const> indices, std::size_t first, elias_fano_shape shape,
                         host_span<std::byte> out) {
    detail::encode_elias_fano(indices, first, shape, out.data());
  }
  template <class I>
  void decode_elias_fano(host_span<std::byte const> in, std::size_t first, elias_fano_shape shape,
                         host_span<I> indices) {
    detail::decode_elias_fano(in, first, shape, indices);
  }
  template <class I>
  void encode_bitmap(host_span<I const> indices, std::size_t first, host_span<std::byte> out) {
    detail::encode_bitmap(indices, first, out);
  }
  template <class I>
  void decode_bitmap(host_span<std::byte const> in, std::size_t first, host_span<I> indices) {
    detail::decode_bitmap(in, first, indices);
  }
  template <class I, class R, class Values>
  void quantise(host_span<I const> indices, host_span<R const> values, Values const& codec, host_span<std::byte> out) {
    detail::quantise(indices, values, codec, out.data());
  }
  template <class R, class Values>
  void dequantise(host_span<std::byte const> in, Values const& codec, host_span<R> values) {
    detail::dequantise(in, codec, values);
  }
};

}  // namespace topsum::detail

#endif
