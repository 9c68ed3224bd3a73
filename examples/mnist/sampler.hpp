// SPDX-License-Identifier: BSL-1.0
/// \file
/// Which examples a rank learns from at each step.
#ifndef MNIST_SAMPLER_HPP
#define MNIST_SAMPLER_HPP

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "mnist/random.hpp"

namespace mnist {

/// Data-parallel shuffling. Every epoch has an order of all examples that follows from (seed, epoch) alone, so ranks
/// agree on it without a message. Step s takes the s-th `batch * ranks` examples of it, rank r the r-th `batch` of
/// those. What does not fill a last step is left out of this epoch.
class sampler {
 public:
  /// `batch` is per rank. Throws std::runtime_error when the examples do not fill one step.
  sampler(std::size_t examples, std::size_t batch, int rank, int ranks, std::uint64_t seed)
      : batch_{batch},
        rank_{static_cast<std::size_t>(rank)},
        ranks_{static_cast<std::size_t>(ranks)},
        seed_{seed},
        order_(examples) {
    if (batch == 0 || examples / ranks_ < batch) {
      throw std::runtime_error{std::to_string(ranks) + " ranks with a batch of " + std::to_string(batch) +
                               " each do not fit " + std::to_string(examples) + " training examples"};
    }
    start_epoch(0);
  }

  [[nodiscard]] std::size_t steps_per_epoch() const noexcept { return order_.size() / (batch_ * ranks_); }

  void start_epoch(std::uint64_t epoch) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::mt19937_64 bits{mix(seed_, epoch)};
    shuffle(std::span{order_}, bits);
  }

  /// The examples of this rank at `step` of the current epoch, valid until the next epoch starts.
  [[nodiscard]] std::span<std::size_t const> operator()(std::size_t step) const {
    return std::span{order_}.subspan((step * ranks_ + rank_) * batch_, batch_);
  }

 private:
  std::size_t batch_;
  std::size_t rank_;
  std::size_t ranks_;
  std::uint64_t seed_;
  std::vector<std::size_t> order_;
};

}  // namespace mnist

#endif  // MNIST_SAMPLER_HPP
