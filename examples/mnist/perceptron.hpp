// SPDX-License-Identifier: BSL-1.0
/// \file
/// A multilayer perceptron whose parameters and gradient are one flat vector each.
#ifndef MNIST_PERCEPTRON_HPP
#define MNIST_PERCEPTRON_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mnist/idx.hpp"
#include "mnist/network.hpp"
#include "mnist/random.hpp"

namespace mnist {

/// Linear layers with ReLU between them and softmax cross-entropy at the end.
///
/// A weight matrix is stored as [in, out]: an input of zero, and most are (the margin of a digit, units that ReLU
/// switched off), then skips a whole row, forward and backward. An example costs about 6n operations without that.
class multilayer_perceptron {
 public:
  /// `widths` runs from the input to the output. He's uniform initialisation, from `seed` alone.
  explicit multilayer_perceptron(std::uint64_t seed, std::vector<std::size_t> widths = {784, 256, classes})
      : widths_{std::move(widths)} {
    if (widths_.size() < 2 || std::ranges::find(widths_, std::size_t{0}) != widths_.end()) {
      throw std::invalid_argument{"a perceptron needs an input and an output width, and no width of zero"};
    }
    std::size_t n = 0;
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      offsets_.push_back(n);
      n += (inputs(layer) + 1) * outputs(layer);
    }
    parameters_.resize(n);
    gradient_.resize(n);
    std::mt19937_64 bits{mix(seed, 0)};
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      initialise(std::span{parameters_}.subspan(offsets_[layer], inputs(layer) * outputs(layer)), inputs(layer), bits);
      outputs_.emplace_back(outputs(layer));
      slopes_.emplace_back(outputs(layer));
    }
  }

  [[nodiscard]] std::vector<named_tensor> tensors() const {
    std::vector<named_tensor> list;
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      auto const name = "linear" + std::to_string(layer + 1);
      auto const in = static_cast<std::int64_t>(inputs(layer));
      auto const out = static_cast<std::int64_t>(outputs(layer));
      list.push_back({name + ".weight", {in, out}});
      list.push_back({name + ".bias", {out}});
    }
    return list;
  }

  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_; }
  [[nodiscard]] std::span<float> gradient() noexcept { return gradient_; }

  /// The mean loss over the batch; fills the gradient of it.
  double loss_and_gradient(digits const& batch) {
    std::ranges::fill(gradient_, 0.0f);
    double loss = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      forward(batch.image(i));
      loss += softmax_cross_entropy(outputs_.back(), batch.labels[i]);
      backward(batch.image(i), 1.0f / static_cast<float>(batch.size()));
    }
    return loss / static_cast<double>(batch.size());
  }

  /// The share of `data` whose label gets the highest score.
  [[nodiscard]] double accuracy(digits const& data) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      forward(data.image(i));
      auto const& scores = outputs_.back();
      if (std::ranges::max_element(scores) - scores.begin() == data.labels[i]) ++right;
    }
    return static_cast<double>(right) / static_cast<double>(data.size());
  }

 private:
  [[nodiscard]] std::size_t layers() const noexcept { return widths_.size() - 1; }
  [[nodiscard]] std::size_t inputs(std::size_t layer) const noexcept { return widths_[layer]; }
  [[nodiscard]] std::size_t outputs(std::size_t layer) const noexcept { return widths_[layer + 1]; }
  [[nodiscard]] std::size_t bias_offset(std::size_t layer) const noexcept {
    return offsets_[layer] + inputs(layer) * outputs(layer);
  }
  [[nodiscard]] std::span<float const> input(std::size_t layer, std::span<float const> image) const noexcept {
    return layer == 0 ? image : std::span<float const>{outputs_[layer - 1]};
  }

  void forward(std::span<float const> image) {
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      auto const in = input(layer, image);
      auto& out = outputs_[layer];
      std::copy_n(parameters_.data() + bias_offset(layer), out.size(), out.begin());
      float const* row = parameters_.data() + offsets_[layer];
      for (float const value : in) {
        if (value != 0) add_scaled(out, value, row);
        row += out.size();
      }
      if (layer + 1 < layers()) {
        for (float& value : out) value = std::max(value, 0.0f);
      }
    }
  }

  /// Adds `weight` times the gradient of one example, whose derivative by the scores lies where they were.
  void backward(std::span<float const> image, float weight) {
    auto& top = slopes_.back();
    for (std::size_t i = 0; i < top.size(); ++i) top[i] = weight * outputs_.back()[i];
    for (std::size_t layer = layers(); layer-- > 0;) {
      auto const in = input(layer, image);
      auto const& slope = slopes_[layer];
      add_scaled({gradient_.data() + bias_offset(layer), slope.size()}, 1, slope.data());
      for (std::size_t i = 0; i < in.size(); ++i) {
        bool const active = in[i] != 0;  // where ReLU gave zero, neither its row nor what lies below has a gradient
        std::size_t const row = offsets_[layer] + i * slope.size();
        if (active) add_scaled({gradient_.data() + row, slope.size()}, in[i], slope.data());
        if (layer > 0) slopes_[layer - 1][i] = active ? dot(slope, parameters_.data() + row) : 0.0f;
      }
    }
  }

  std::vector<std::size_t> widths_;
  std::vector<std::size_t> offsets_;  ///< of each layer in the flat vectors: weights, then biases
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::vector<std::vector<float>> outputs_;  ///< of each layer, for one example
  std::vector<std::vector<float>> slopes_;   ///< derivatives of the loss by each layer's sums
};

static_assert(network<multilayer_perceptron>);

}  // namespace mnist

#endif  // MNIST_PERCEPTRON_HPP
