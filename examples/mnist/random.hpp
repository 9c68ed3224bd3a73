// SPDX-License-Identifier: BSL-1.0
/// \file
/// Random numbers that are the same with every standard library (its distributions and std::shuffle are not).
#ifndef MNIST_RANDOM_HPP
#define MNIST_RANDOM_HPP

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace mnist {

/// Uniform in [0, 1), with 24 random bits.
[[nodiscard]] inline float uniform(std::mt19937_64& bits) { return static_cast<float>(bits() >> 40) * 0x1p-24f; }

/// Puts `values` in a random order, each order as likely as any other (up to 2^-32 for ranges below 2^32).
template <class T>
void shuffle(std::span<T> values, std::mt19937_64& bits) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[static_cast<std::size_t>(bits() % left)]);
  }
}

/// One seed from two numbers, so that neighbours in either give unrelated streams.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t seed, std::uint64_t stream) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  std::uint32_t words[2];
  sequence.generate(words, words + 2);
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace mnist

#endif  // MNIST_RANDOM_HPP
