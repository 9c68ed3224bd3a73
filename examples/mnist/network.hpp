// SPDX-License-Identifier: BSL-1.0
/// \file
/// What the demo needs of a network, and the arithmetic that its networks share.
#ifndef MNIST_NETWORK_HPP
#define MNIST_NETWORK_HPP

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mnist/idx.hpp"
#include "mnist/random.hpp"

namespace mnist {

/// One parameter tensor: its place in the flat vectors follows from those before it.
struct named_tensor {
  std::string name;
  std::vector<std::int64_t> extents;
};

/// What `train` needs of a network. `tensors()` describes `parameters()` and `gradient()`, both of n values, in order;
/// `loss_and_gradient(batch)` gives the mean loss over the batch and fills the gradient of that mean;
/// `accuracy(data)` is the share of `data` named right, in [0, 1].
template <class N>
concept network = requires(N model, N const& fixed, digits const& data) {
  { fixed.tensors() } -> std::convertible_to<std::vector<named_tensor>>;
  { model.parameters() } -> std::same_as<std::span<float>>;
  { model.gradient() } -> std::same_as<std::span<float>>;
  { model.loss_and_gradient(data) } -> std::same_as<double>;
  { model.accuracy(data) } -> std::same_as<double>;
};

/// sum += factor * row, entry by entry.
inline void add_scaled(std::span<float> sum, float factor, float const* row) noexcept {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * row[i];
}

/// Sum of a[i] * b[i], in eight interleaved partial sums, so that it vectorises without reordering by the compiler.
[[nodiscard]] inline float dot(std::span<float const> a, float const* b) noexcept {
  constexpr std::size_t lanes = 8;
  float partial[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= a.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (float const part : partial) sum += part;
  return sum;
}

/// In: scores, one a class. Out: the derivative of the cross-entropy of their softmax by each. Returns that loss.
[[nodiscard]] inline double softmax_cross_entropy(std::span<float> scores, std::size_t label) noexcept {
  float const largest = *std::ranges::max_element(scores);
  float const target = scores[label] - largest;
  float total = 0;
  for (float& score : scores) total += score = std::exp(score - largest);
  for (float& score : scores) score /= total;
  scores[label] -= 1;
  return std::log(double{total}) - double{target};
}

/// He's uniform initialisation of weights that are summed `inputs` at a time.
inline void initialise(std::span<float> weights, std::size_t inputs, std::mt19937_64& bits) {
  float const bound = std::sqrt(6.0f / static_cast<float>(inputs));
  for (float& weight : weights) weight = bound * (2 * uniform(bits) - 1);
}

}  // namespace mnist

#endif  // MNIST_NETWORK_HPP
