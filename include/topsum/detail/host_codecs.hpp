// SPDX-License-Identifier: BSL-1.0
/// \file
/// The host's coding verbs: runs of bits, Elias-Fano, bitmaps, quantised values. Words at a time, no byte outside the message.
#ifndef TOPSUM_DETAIL_HOST_CODECS_HPP
#define TOPSUM_DETAIL_HOST_CODECS_HPP

#include <algorithm>
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
  bit_writer out{to};
  for (I const index : indices) out.put(std::uint64_t{index} - first, width);
  out.finish();
}

template <class I>
void decode_bits(host_span<std::byte const> from, std::size_t first, int width, host_span<I> indices) noexcept {
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<I>(first + (width == 0 ? 0 : bits_at(from.data(), from.size(), i, width)));
}

/// Upper halves in unary: bit (upper + i) is set for entry i; lower halves behind them.
template <class I>
void encode_elias_fano(host_span<I const> indices, std::size_t first, elias_fano_shape shape, std::byte* to) noexcept {
  std::memset(to, 0, shape.upper_bytes());
  std::uint64_t const mask = (std::uint64_t{1} << shape.low) - 1;
  bit_writer lower{to + shape.upper_bytes()};
  std::uint64_t word = 0;
  std::size_t at = 0;  // the word's place
  std::size_t i = 0;
  for (I const index : indices) {
    std::uint64_t const value = std::uint64_t{index} - first;
    std::size_t const bit = static_cast<std::size_t>(value >> shape.low) + i++;
    if (bit / 64 != at) {
      std::memcpy(to + at * 8, &word, std::min(sizeof word, shape.upper_bytes() - at * 8));
      word = 0;
      at = bit / 64;
    }
    word |= std::uint64_t{1} << bit % 64;
    if (shape.low != 0) lower.put(value & mask, shape.low);
  }
  if (!indices.empty()) std::memcpy(to + at * 8, &word, std::min(sizeof word, shape.upper_bytes() - at * 8));
  if (shape.low != 0) lower.finish();
}

/// Bytes with fewer upper halves than entries repeat the last index, which no check lets pass.
template <class I>
void decode_elias_fano(host_span<std::byte const> from, std::size_t first, elias_fano_shape shape,
                       host_span<I> indices) noexcept {
  std::size_t const upper = std::min(shape.upper_bytes(), from.size());
  std::byte const* const lower = from.data() + upper;
  std::size_t const lower_size = from.size() - upper;
  std::size_t i = 0;
  for (std::size_t at = 0; at < upper && i < indices.size(); at += 8) {
    for (std::uint64_t word = word_at(from.data(), upper, at); word != 0 && i < indices.size(); word &= word - 1, ++i) {
      std::uint64_t const high = at * 8 + static_cast<std::size_t>(std::countr_zero(word)) - i;
      std::uint64_t const low = shape.low == 0 ? 0 : bits_at(lower, lower_size, i, shape.low);
      indices[i] = static_cast<I>(first + (high << shape.low | low));
    }
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
  if constexpr (width % 8 == 0 && (width & (width - 1)) == 0) {
    constexpr std::size_t bytes = width / 8;
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t const code = codec.template code<R>(header, values[i], indices[i]);
      std::memcpy(to + i * bytes, &code, bytes);
    }
  } else {
    bit_writer out{to};
    for (std::size_t i = 0; i < values.size(); ++i)
      out.put(codec.template code<R>(header, values[i], indices[i]), width);
    out.finish();
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
  if constexpr (width % 8 == 0 && (width & (width - 1)) == 0) {
    constexpr std::size_t bytes = width / 8;
    assert(values.size() * bytes <= size);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, data + i * bytes, bytes);
      values[i] = codec.template value<R>(header, code);
    }
  } else {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = codec.template value<R>(header, bits_at(data, size, i, width));
  }
}

}  // namespace topsum::detail

#endif
