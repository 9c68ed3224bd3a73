// SPDX-License-Identifier: BSL-1.0
// Gradients recorded from a training run: see tests/data/README.md.
#ifndef TOPSUM_TESTS_SUPPORT_RECORDED_HPP
#define TOPSUM_TESTS_SUPPORT_RECORDED_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <topsum/layout.hpp>
#include <vector>

namespace test {

class recorded {
 public:
  static constexpr std::size_t steps = 8;
  static constexpr std::size_t workers = 2;
  static constexpr std::size_t n = 4896;

  // TOPSUM_TEST_DATA names the folder.
  recorded() {
    std::ifstream file{std::string{TOPSUM_TEST_DATA} + "/conv_slice.bf16", std::ios::binary};
    bytes_.assign(std::istreambuf_iterator<char>{file}, {});
    if (bytes_.size() != steps * workers * n * 2) throw std::runtime_error{"conv_slice.bf16 is missing or not whole"};
  }

  static topsum::layout shapes() {
    return {{"c1.weight", {16, 1, 3, 3}},  {"c1.bias", {16}}, {"b1.weight", {16}}, {"b1.bias", {16}},
            {"c2.weight", {32, 16, 3, 3}}, {"c2.bias", {32}}, {"b2.weight", {32}}, {"b2.bias", {32}}};
  }

  // Step and worker go round: ranks beyond the second take later steps of the same workers.
  [[nodiscard]] std::vector<float> gradient(std::size_t step, std::size_t rank) const {
    std::size_t const at = ((step + rank / workers * 3) % steps * workers + rank % workers) * n;
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) {
      auto const low = static_cast<unsigned char>(bytes_[2 * (at + i)]);
      auto const high = static_cast<unsigned char>(bytes_[2 * (at + i) + 1]);
      values[i] = std::bit_cast<float>((std::uint32_t{high} << 24) | (std::uint32_t{low} << 16));
    }
    return values;
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace test

#endif
