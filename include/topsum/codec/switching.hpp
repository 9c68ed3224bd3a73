// SPDX-License-Identifier: BSL-1.0
/// \file
/// Codec: another one, or a bitmap with plain values where that is smaller.
#ifndef TOPSUM_CODEC_SWITCHING_HPP
#define TOPSUM_CODEC_SWITCHING_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <topsum/codec/as.hpp>
#include <topsum/codec/bitmap.hpp>
#include <topsum/codec/coded.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/stage.hpp>

namespace topsum {

/// Codec: a message in `Sparse`, or, where that takes fewer bytes, as a bitmap with its values: the turn from a sparse to a nearly
/// dense message, which both sides take by count and extent alone. From about one entry in 32 places on with `raw`.
///
/// What `dense` switches of published schemes do, for an n-th of a bit a value more, and without losing which entries are there.
template <class Sparse>
struct switching {
  using stage_tag = codec_tag;
  static constexpr std::string_view name = "switching";
  static constexpr bool lossless = Sparse::lossless;

  Sparse sparse{};

  constexpr explicit switching(Sparse of = {}) : sparse{of} {}

  void validate() const { sparse.validate(); }

  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes(std::size_t count, std::size_t first, std::size_t extent) const noexcept {
    return std::min(sparse.template bytes<R, I>(count, first, extent),
                    dense.template bytes<R, I>(count, first, extent));
  }
  template <class R, class I>
  [[nodiscard]] constexpr std::size_t bytes_at_most(std::size_t count, std::size_t messages,
                                                    std::size_t extent) const noexcept {
    return std::min(sparse.template bytes_at_most<R, I>(count, messages, extent),
                    dense.template bytes_at_most<R, I>(count, messages, extent));
  }

  template <class B, class R, class I>
  void encode(B& backend, entries_run<B, R, I> run, std::size_t first, std::size_t extent,
              typename B::template span<std::byte> out) const {
    if (is_dense<R, I>(run.size(), first, extent)) {
      dense.encode(backend, run, first, extent, out);
    } else {
      sparse.encode(backend, run, first, extent, out);
    }
  }
  template <class B, class R, class I>
  void decode(B& backend, typename B::template span<std::byte const> in, std::size_t count, std::size_t first,
              std::size_t extent, entries_view<B, R, I> list, typename B::template span<std::uint32_t> fault) const {
    if (is_dense<R, I>(count, first, extent)) {
      dense.decode(backend, in, count, first, extent, list, fault);
    } else {
      sparse.decode(backend, in, count, first, extent, list, fault);
    }
  }

  void describe(description& out) const {
    out.open(name);
    out("sparse", sparse);
    out.close();
  }

 private:
  static constexpr coded<bitmap, as_is> dense{};

  template <class R, class I>
  [[nodiscard]] constexpr bool is_dense(std::size_t count, std::size_t first, std::size_t extent) const noexcept {
    return dense.template bytes<R, I>(count, first, extent) < sparse.template bytes<R, I>(count, first, extent);
  }
};

}  // namespace topsum

#endif
