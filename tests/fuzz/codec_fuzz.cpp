// SPDX-License-Identifier: BSL-1.0
// libFuzzer's door to the decoders:
//   CXX=clang++-16 meson setup build-fuzz -Dfuzzers=true -Db_sanitize=address,undefined -Db_lundef=false
//   meson compile -C build-fuzz codec_fuzz
//   build-fuzz/tests/fuzz/codec_fuzz -max_total_time=600 -max_len=512 tests/data/codec_corpus
#include "support/codec_fuzzing.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  test::decode_anything(data, size);
  return 0;
}
