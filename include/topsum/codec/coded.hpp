// SPDX-License-Identifier: BSL-1.0
/// \file
/// Codec: an index codec and a value codec, one behind the other.
#ifndef TOPSUM_CODEC_CODED_HPP
#define TOPSUM_CODEC_CODED_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <topsum/codec/as.hpp>
#include <topsum/codec/elias_fano.hpp>
#include <topsum/codec/index_codes.hpp>
#include <topsum/concepts.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Codec: coded indices, then coded values, each by a codec of its own.
///
///     topsum::coded{topsum::elias_fano{}, topsum::as<topsum::half>{}}   // about 25 bits an entry at 1 %
///
/// Indices survive; values do where `Values::lossless`. What a lossy codec took from an entry stays in the sender's residual: from it
/// the exchange subtracts what receivers decoded. Decoding checks indices, and takes values as they come.
template <class Indices = elias_fano, class Values = as_is>
struct coded {
  using stage_tag = codec_tag;
  static constexpr std::string_view name = "coded";
  static constexpr bool lossless = Values::lossless;

  Indices indices{};
  Values values{};

  constexpr explicit coded(Indices i = {}, Values v = {}) : indices{i}, values{v} {}

  void validate() const {
    indices.validate();
    values.validate();
  }

  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t /*first*/,
                                            std::size_t extent) const noexcept {
    return count == 0 ? 0 : indices.bytes(count, extent) + value_bytes<R>(count);
  }
  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t messages,
                                                    std::size_t extent) const noexcept {
    std::size_t const used = std::min(count, messages);
    return indices.bytes_at_most(count, messages, extent) + used * (header_bytes<R> + 1) +
           bytes_for(count * static_cast<std::size_t>(Values::template bits<R>));
  }

  template <class B, class R, class I>
  void encode(B& backend, entries_run<B, R, I> run, std::size_t first, std::size_t extent,
              typename B::template span<std::byte> out) const {
    if (run.size() == 0) return;
    std::size_t const index_bytes = indices.bytes(run.size(), extent);
    indices.template encode<B, I>(backend, run.indices, first, extent, out.subspan(0, index_bytes));
    backend.quantise(run.indices, run.values, values, out.subspan(index_bytes, value_bytes<R>(run.size())));
  }

  template <class B, class R, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t count, std::size_t first,
              std::size_t extent, entries_view<B, R, I> list, typename B::template span<std::uint32_t> fault) const {
    backend.fill(list.count, count);
    if (count == 0) return;
    std::size_t const index_bytes = indices.bytes(count, extent);
    indices.template decode<B, I>(backend, in.subspan(0, index_bytes), first, extent, list.indices.subspan(0, count));
    backend.dequantise(in.subspan(index_bytes, value_bytes<R>(count)), values, list.values.subspan(0, count));
    backend.check(list, first, first + extent, fault);
  }

  void describe(description& out) const {
    out.open(name);
    out("indices", indices);
    out("values", values);
    out.close();
  }

 private:
  template <class R>
  static constexpr std::size_t header_bytes = std::is_empty_v<typename Values::template header<R>>
                                                  ? 0
                                                  : sizeof(typename Values::template header<R>);

  template <class R>
  [[nodiscard]] static constexpr std::size_t value_bytes(std::size_t count) noexcept {
    return header_bytes<R> + bytes_for(count * static_cast<std::size_t>(Values::template bits<R>));
  }
};

}  // namespace topsum

#endif
