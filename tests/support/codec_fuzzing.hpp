// SPDX-License-Identifier: BSL-1.0
// Any bytes to every decoder: for libFuzzer, and for tests that replay what it found.
#ifndef TOPSUM_TESTS_SUPPORT_CODEC_FUZZING_HPP
#define TOPSUM_TESTS_SUPPORT_CODEC_FUZZING_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <topsum/topsum.hpp>
#include <vector>

namespace test {

// Bytes of exactly a message's size, in memory of that size, so that a sanitizer sees every step outside.
template <class R, class I, class K>
void decode_message(K const& codec, std::span<std::byte const> bytes, std::size_t count, std::size_t first,
                    std::size_t extent) {
  std::vector<std::byte> message(codec.template bytes<R, I>(count, first, extent));
  for (std::size_t i = 0; i < message.size() && !bytes.empty(); ++i) message[i] = bytes[i % bytes.size()];
  topsum::host backend;
  topsum::entries<topsum::host, R, I> list{backend, count};
  std::uint32_t fault = 0;
  codec.decode(backend, topsum::host_span<std::byte const>{message}, count, first, extent, list.view(),
               topsum::host_span<std::uint32_t>{&fault, 1});
  std::size_t const taken = list.view().count[0];
  if (taken > count || (fault != 0) != (taken != count)) std::abort();
  for (std::size_t e = 0; e < taken; ++e) {
    std::size_t const index = list.view().indices[e];
    if (index < first || index >= first + extent || (e != 0 && list.view().indices[e - 1] >= index)) std::abort();
  }
  // What decodes without fault encodes again, and decodes to the same indices.
  if (fault != 0) return;
  codec.encode(backend, topsum::run_of(list.view(), 0, count), first, extent, topsum::host_span<std::byte>{message});
  topsum::entries<topsum::host, R, I> again{backend, count};
  codec.decode(backend, topsum::host_span<std::byte const>{message}, count, first, extent, again.view(),
               topsum::host_span<std::uint32_t>{&fault, 1});
  for (std::size_t e = 0; e < count; ++e) {
    if (again.view().indices[e] != list.view().indices[e]) std::abort();
  }
}

// The first eight bytes say what is decoded: a codec, a count, an extent, a first index.
inline void decode_anything(std::uint8_t const* data, std::size_t size) {
  if (size < 8) return;
  auto const number = [&](std::size_t at) { return std::size_t{data[at]} | std::size_t{data[at + 1]} << 8; };
  std::size_t const extent = number(2) % 5000;
  std::size_t const count = extent == 0 ? 0 : number(4) % (extent + 1);
  std::size_t const first = number(6);
  auto const bytes = std::as_bytes(std::span{data + 8, size - 8});
  using namespace topsum;
  switch (data[0] % 12) {
    case 0: return decode_message<float, std::uint32_t>(raw{}, bytes, count, first, extent);
    case 1: return decode_message<float, std::uint32_t>(coded{elias_fano{}, as_is{}}, bytes, count, first, extent);
    case 2: return decode_message<double, std::uint64_t>(coded{elias_fano{}, as<half>{}}, bytes, count, first, extent);
    case 3: return decode_message<float, std::uint64_t>(coded{packed{}, as<bfloat16>{}}, bytes, count, first, extent);
    case 4: return decode_message<float, std::uint32_t>(coded{bitmap{}, int8{}}, bytes, count, first, extent);
    case 5: return decode_message<float, std::uint32_t>(coded{elias_fano{}, sign{}}, bytes, count, first, extent);
    case 6: return decode_message<float, std::uint32_t>(coded{packed{}, lookup<2>{}}, bytes, count, first, extent);
    case 7: return decode_message<double, std::uint32_t>(coded{elias_fano{}, lookup<7>{}}, bytes, count, first, extent);
    case 8: return decode_message<float, std::uint32_t>(coded{bitmap{}, qsgd<4>{}}, bytes, count, first, extent);
    case 9: return decode_message<float, std::uint32_t>(coded{elias_fano{}, qsgd<11>{}}, bytes, count, first, extent);
    case 10: return decode_message<float, std::uint32_t>(switching{raw{}}, bytes, count, first, extent);
    default: break;
  }
  decode_message<float, std::uint32_t>(switching{coded{elias_fano{}, as<half>{}}}, bytes, count, first, extent);
}

}  // namespace test

#endif
