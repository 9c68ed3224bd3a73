// SPDX-License-Identifier: BSL-1.0
/// \file
/// Laws of codecs.
#ifndef TOPSUM_TESTING_CODEC_LAWS_HPP
#define TOPSUM_TESTING_CODEC_LAWS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/testing/inputs.hpp>

namespace topsum::laws {

/// Laws of `codec`: decode(encode(x)) = x for a lossless codec, indices always; any bytes decode without harm, and what is
/// taken from them lies in range; `bytes_at_most` bounds the sum over messages.
template <class R, class I = std::uint32_t, class S, class B = host>
  requires codec<S, B, R, I>
[[nodiscard]] failures codec(S const& stage, B backend = {}) {
  verdict v;
  stage.validate();
  auto fault = backend.template allocate<std::uint32_t>(1);
  for (std::size_t const extent : {std::size_t{1}, std::size_t{2}, std::size_t{97}, std::size_t{5000}}) {
    for (std::size_t const first : {std::size_t{0}, std::size_t{1000}}) {
      for (std::size_t const every : {std::size_t{1}, std::size_t{2}, std::size_t{31}, std::size_t{6000}}) {
        v.about(std::string{S::name} + ", one of " + std::to_string(every) + " indices in [" + std::to_string(first) +
                ", " + std::to_string(first + extent) + ")");
        std::vector<I> indices;
        std::vector<R> values;
        for (std::size_t i = every / 2; i < extent; i += every) {
          indices.push_back(static_cast<I>(first + i));
          values.push_back(static_cast<R>(static_cast<double>(random_bits(3, i) % 1000) - 500));
        }
        std::size_t const count = indices.size();
        std::size_t const size = stage.template bytes<R, I>(count, first, extent);
        v.expect(size <= stage.template bytes_at_most<R, I>(count, 1, extent), "bytes_at_most bounds bytes");
        auto const i_there = place(backend, indices);
        auto const v_there = place(backend, values);
        auto message = backend.template allocate<std::byte>(size);
        stage.encode(backend, entries_run<B, R, I>{i_there.view(), v_there.view()}, first, extent, message.view());
        entries<B, R, I> got{backend, std::max<std::size_t>(count, 1)};
        backend.fill(fault.view(), std::uint32_t{0});
        stage.decode(backend, typename B::template span<std::byte const>{message.view()}, count, first, extent,
                     got.view(), fault.view());
        v.expect(backend.read(typename B::template span<std::uint32_t const>{fault.view()}) == 0,
                 "what was encoded decodes without fault");
        bool const all = v.expect(backend.read(typename B::template span<std::size_t const>{got.view().count}) == count,
                                  "the count survives");
        if (all) v.expect(fetch<I>(backend, got.view().indices, count) == indices, "indices survive");
        if (all && S::lossless)
          v.expect(fetch<R>(backend, got.view().values, count) == values, "values survive a lossless codec");

        for (std::uint64_t seed = 0; seed < 8; ++seed) {
          auto noise = fetch<std::byte>(backend, message.view(), size);
          for (std::size_t hit = 0; hit <= size / 16 && size > 0; ++hit) {
            noise[static_cast<std::size_t>(random_bits(seed, hit) % size)] = static_cast<std::byte>(
                random_bits(seed + 100, hit));
          }
          auto const broken = place(backend, noise);
          backend.fill(fault.view(), std::uint32_t{0});
          stage.decode(backend, typename B::template span<std::byte const>{broken.view()}, count, first, extent,
                       got.view(), fault.view());
          std::size_t const taken = backend.read(typename B::template span<std::size_t const>{got.view().count});
          if (!v.expect(taken <= count, "no more entries are taken from noise than a message holds")) continue;
          auto const where = fetch<I>(backend, got.view().indices, taken);
          for (std::size_t e = 0; e < taken; ++e) {
            v.expect(where[e] >= first && where[e] < first + extent && (e == 0 || where[e - 1] < where[e]),
                     "indices taken from noise increase within the range");
          }
        }
      }
    }
  }
  return std::move(v).list();
}

}  // namespace topsum::laws

#endif
