// SPDX-License-Identifier: BSL-1.0
/// \file
/// A small convolutional network whose parameters and gradient are one flat vector each.
#ifndef MNIST_CONVOLUTIONAL_NETWORK_HPP
#define MNIST_CONVOLUTIONAL_NETWORK_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "mnist/idx.hpp"
#include "mnist/network.hpp"
#include "mnist/random.hpp"

namespace mnist {

/// How large a convolutional network is. Defaults are those of the demo: 56 970 parameters for images of 28 x 28.
struct convolutional_shape {
  std::size_t side = 28;       ///< of the square image
  std::size_t kernel1 = 5;     ///< side of the first convolution's window
  std::size_t channels1 = 16;  ///< its output channels
  std::size_t kernel2 = 3;
  std::size_t channels2 = 32;
  std::size_t hidden = 64;  ///< width of the linear layer between
};

/// Two convolutions, each with ReLU and a pool of 2 x 2 (the maximum), a linear layer with ReLU, and one to the classes.
///
/// Tensors are PyTorch's: convolutions [out, in, height, width], linear layers [out, in]. Inside, values of one place in an image lie
/// beside each other, channel by channel, so that the innermost loops run over channels; weights are put in that order once a batch.
class convolutional_network {
 public:
  /// He's uniform initialisation, from `seed` alone.
  explicit convolutional_network(std::uint64_t seed, convolutional_shape const& shape = {})
      : shape_{shape},
        conv1_{1, shape.channels1, shape.kernel1, shape.side},
        conv2_{shape.channels1, shape.channels2, shape.kernel2, conv1_.pooled()} {
    flat_ = conv2_.pooled() * conv2_.pooled() * shape.channels2;
    if (flat_ == 0 || shape.hidden == 0) throw std::invalid_argument{"the image is too small for two convolutions"};
    std::size_t n = 0;
    auto const place = [&n](std::size_t size) {
      std::size_t const at = n;
      n += size;
      return at;
    };
    std::mt19937_64 bits{mix(seed, 0)};
    weights1_ = place(conv1_.weights());
    bias1_ = place(conv1_.out);
    weights2_ = place(conv2_.weights());
    bias2_ = place(conv2_.out);
    linear1_ = place(flat_ * shape.hidden);
    linear1_bias_ = place(shape.hidden);
    linear2_ = place(shape.hidden * classes);
    linear2_bias_ = place(classes);
    parameters_.resize(n);
    gradient_.resize(n);
    auto const all = std::span{parameters_};
    initialise(all.subspan(weights1_, conv1_.weights()), conv1_.weights() / conv1_.out, bits);
    initialise(all.subspan(weights2_, conv2_.weights()), conv2_.weights() / conv2_.out, bits);
    initialise(all.subspan(linear1_, flat_ * shape.hidden), flat_, bits);
    initialise(all.subspan(linear2_, shape.hidden * classes), shape.hidden, bits);
    hidden_.resize(shape.hidden);
    hidden_slope_.resize(shape.hidden);
  }

  [[nodiscard]] std::vector<named_tensor> tensors() const {
    auto const at = [](std::size_t x) { return static_cast<std::int64_t>(x); };
    auto const kernel = [&](convolution const& c) {
      return std::vector<std::int64_t>{at(c.out), at(c.in), at(c.kernel), at(c.kernel)};
    };
    return {{"conv1.weight", kernel(conv1_)},
            {"conv1.bias", {at(conv1_.out)}},
            {"conv2.weight", kernel(conv2_)},
            {"conv2.bias", {at(conv2_.out)}},
            {"linear1.weight", {at(shape_.hidden), at(flat_)}},
            {"linear1.bias", {at(shape_.hidden)}},
            {"linear2.weight", {at(classes), at(shape_.hidden)}},
            {"linear2.bias", {at(classes)}}};
  }

  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_; }
  [[nodiscard]] std::span<float> gradient() noexcept { return gradient_; }

  /// The mean loss over the batch; fills the gradient of it.
  double loss_and_gradient(digits const& batch) {
    std::ranges::fill(gradient_, 0.0f);
    begin_batch();
    double loss = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      forward(batch.image(i));
      loss += softmax_cross_entropy(scores_, batch.labels[i]);
      backward(batch.image(i), 1.0f / static_cast<float>(batch.size()));
    }
    conv1_.add_gradient(gradient_.data() + weights1_);
    conv2_.add_gradient(gradient_.data() + weights2_);
    return loss / static_cast<double>(batch.size());
  }

  /// The share of `data` whose label gets the highest score.
  [[nodiscard]] double accuracy(digits const& data) {
    begin_batch();
    std::size_t right = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      forward(data.image(i));
      if (std::ranges::max_element(scores_) - scores_.begin() == data.labels[i]) ++right;
    }
    return static_cast<double>(right) / static_cast<double>(data.size());
  }

 private:
  /// One convolution with ReLU and pool; images are [y][x][channel].
  struct convolution {
    convolution(std::size_t channels_in, std::size_t channels_out, std::size_t side_of_kernel,
                std::size_t side_of_image)
        : in{channels_in}, out{channels_out}, kernel{side_of_kernel}, side{side_of_image} {
      if (kernel == 0 || side < kernel + 1) throw std::invalid_argument{"an image is too small for its convolution"};
      forward_weights.resize(weights());
      backward_weights.resize(weights());
      slopes.resize(weights());
      row.resize(out);
      result.resize(pooled() * pooled() * out);
      winner.resize(result.size());
    }
    [[nodiscard]] std::size_t weights() const noexcept { return out * in * kernel * kernel; }
    [[nodiscard]] std::size_t pooled() const noexcept { return (side - kernel + 1) / 2; }

    /// Takes over weights [out][in][y][x], as [y][x][in][out] and [out][y][x][in].
    void take(float const* from) {
      std::size_t const window = kernel * kernel;
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t c = 0; c < in; ++c) {
          for (std::size_t w = 0; w < window; ++w) {
            float const weight = from[(o * in + c) * window + w];
            forward_weights[(w * in + c) * out + o] = weight;
            backward_weights[(o * window + w) * in + c] = weight;
          }
        }
      }
      std::ranges::fill(slopes, 0.0f);
    }
    void add_gradient(float* to) const {
      std::size_t const window = kernel * kernel;
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t w = 0; w < window; ++w) {
          for (std::size_t c = 0; c < in; ++c) to[(o * in + c) * window + w] += slopes[(o * window + w) * in + c];
        }
      }
    }

    /// The largest of four neighbouring sums, where that is above zero, and where it was found.
    void forward(float const* image, float const* bias) {
      std::ranges::fill(result, 0.0f);
      for (std::size_t y = 0; y < 2 * pooled(); ++y) {
        for (std::size_t x = 0; x < 2 * pooled(); ++x) {
          std::copy_n(bias, out, row.begin());
          float const* weight = forward_weights.data();
          for (std::size_t ky = 0; ky < kernel; ++ky) {
            float const* value = image + ((y + ky) * side + x) * in;
            for (std::size_t i = 0; i < kernel * in; ++i, weight += out) {
              if (value[i] != 0) add_scaled(row, value[i], weight);
            }
          }
          std::size_t const to = (y / 2 * pooled() + x / 2) * out;
          for (std::size_t o = 0; o < out; ++o) {
            if (row[o] <= result[to + o]) continue;
            result[to + o] = row[o];
            winner[to + o] = static_cast<std::uint32_t>((y * side + x) * in);
          }
        }
      }
    }

    /// `slope` by the pooled results. Adds up the gradient of weights and biases, and that of the image unless that is null.
    void backward(float const* image, float const* slope, float* bias_slope, float* image_slope) {
      for (std::size_t p = 0; p < result.size(); p += out) {
        for (std::size_t o = 0; o < out; ++o) {
          if (result[p + o] == 0 || slope[p + o] == 0) continue;
          float const s = slope[p + o];
          bias_slope[o] += s;
          for (std::size_t ky = 0; ky < kernel; ++ky) {
            std::size_t const at = winner[p + o] + ky * side * in;
            std::size_t const w = (o * kernel + ky) * kernel * in;
            add_scaled({slopes.data() + w, kernel * in}, s, image + at);
            if (image_slope != nullptr) add_scaled({image_slope + at, kernel * in}, s, backward_weights.data() + w);
          }
        }
      }
    }

    std::size_t in, out, kernel, side;
    std::vector<float> forward_weights, backward_weights, slopes, row, result;
    std::vector<std::uint32_t> winner;
  };

  void begin_batch() {
    conv1_.take(parameters_.data() + weights1_);
    conv2_.take(parameters_.data() + weights2_);
  }

  void forward(std::span<float const> image) {
    conv1_.forward(image.data(), parameters_.data() + bias1_);
    conv2_.forward(conv1_.result.data(), parameters_.data() + bias2_);
    for (std::size_t h = 0; h < hidden_.size(); ++h) {
      float const sum = parameters_[linear1_bias_ + h] + dot(conv2_.result, parameters_.data() + linear1_ + h * flat_);
      hidden_[h] = std::max(sum, 0.0f);
    }
    for (std::size_t c = 0; c < scores_.size(); ++c)
      scores_[c] = parameters_[linear2_bias_ + c] + dot(hidden_, parameters_.data() + linear2_ + c * hidden_.size());
  }

  /// Adds `weight` times the gradient of one example, whose derivative by the scores lies where they were.
  void backward(std::span<float const> image, float weight) {
    std::ranges::fill(hidden_slope_, 0.0f);
    for (std::size_t c = 0; c < scores_.size(); ++c) {
      float const slope = weight * scores_[c];
      gradient_[linear2_bias_ + c] += slope;
      std::size_t const row = linear2_ + c * hidden_.size();
      add_scaled({gradient_.data() + row, hidden_.size()}, slope, hidden_.data());
      add_scaled(hidden_slope_, slope, parameters_.data() + row);
    }
    flat_slope_.assign(flat_, 0.0f);
    for (std::size_t h = 0; h < hidden_.size(); ++h) {
      if (hidden_[h] == 0) continue;
      gradient_[linear1_bias_ + h] += hidden_slope_[h];
      std::size_t const row = linear1_ + h * flat_;
      add_scaled({gradient_.data() + row, flat_}, hidden_slope_[h], conv2_.result.data());
      add_scaled(flat_slope_, hidden_slope_[h], parameters_.data() + row);
    }
    image_slope_.assign(conv1_.result.size(), 0.0f);
    conv2_.backward(conv1_.result.data(), flat_slope_.data(), gradient_.data() + bias2_, image_slope_.data());
    conv1_.backward(image.data(), image_slope_.data(), gradient_.data() + bias1_, nullptr);
  }

  convolutional_shape shape_;
  convolution conv1_, conv2_;
  std::size_t flat_ = 0;  ///< results of the second convolution
  std::size_t weights1_, bias1_, weights2_, bias2_, linear1_, linear1_bias_, linear2_, linear2_bias_;  // in the vectors
  std::vector<float> parameters_, gradient_;
  std::vector<float> hidden_, hidden_slope_, flat_slope_, image_slope_;
  std::array<float, classes> scores_{};
};

static_assert(network<convolutional_network>);

}  // namespace mnist

#endif  // MNIST_CONVOLUTIONAL_NETWORK_HPP
