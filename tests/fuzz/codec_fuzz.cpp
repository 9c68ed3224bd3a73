// SPDX-License-Identifier: BSL-1.0
// libFuzzer's door to the decoders:
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude -Itests tests/fuzz/codec_fuzz.cpp -o codec_fuzz
//   ./codec_fuzz -max_total_time=600 -max_len=512 tests/data/codec_corpus
#include "support/codec_fuzzing.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  test::decode_anything(data, size);
  return 0;
}
