// SPDX-License-Identifier: BSL-1.0
/// \file
/// Stochastic gradient descent around an aggregation: the momentum may lie before it or after it.
#ifndef MNIST_OPTIMIZER_HPP
#define MNIST_OPTIMIZER_HPP

#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

namespace mnist {

/// Where momentum is kept.
///
/// - `global`: after aggregation, on the mean over ranks; the classic place. A sparse mean makes every entry's momentum
///   run on for steps after the entry itself came late from the residual, which can hurt.
/// - `local`: before aggregation, on every rank for itself (u = mu * u + g); u is what is reduced.
/// - `none`: plain descent.
enum class momentum_place { none, local, global };

/// Linear warm-up to `peak`, then half a cosine down to zero at `total_steps`.
struct rate_schedule {
  double peak = 0.1;
  std::size_t warm_up_steps = 0;
  std::size_t total_steps = 1;

  [[nodiscard]] double operator()(std::size_t step) const noexcept {
    if (step < warm_up_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warm_up_steps);
    if (step >= total_steps) return 0;
    auto const progress = static_cast<double>(step - warm_up_steps) / static_cast<double>(total_steps - warm_up_steps);
    return peak / 2 * (1 + std::cos(std::numbers::pi * progress));
  }
};

/// A step is: gradient of this rank; `before_reduction`; the mean over ranks; `apply`.
class optimizer {
 public:
  /// `n` parameters; `momentum` in [0, 1) is ignored when its place is `none`.
  optimizer(std::size_t n, momentum_place place, double momentum, rate_schedule rate)
      : place_{place},
        momentum_{static_cast<float>(momentum)},
        rate_{rate},
        velocity_(place == momentum_place::none ? 0 : n) {}

  /// Turns this rank's gradient into what is to be reduced.
  void before_reduction(std::span<float> gradient) noexcept {
    if (place_ == momentum_place::local) gather_speed(gradient);
  }

  /// Moves the parameters by the reduced gradient, which it uses as scratch.
  void apply(std::span<float> parameters, std::span<float> reduced) noexcept {
    if (place_ == momentum_place::global) gather_speed(reduced);
    auto const rate = static_cast<float>(rate_(step_++));
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * reduced[i];
  }

 private:
  void gather_speed(std::span<float> gradient) noexcept {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      velocity_[i] = momentum_ * velocity_[i] + gradient[i];
      gradient[i] = velocity_[i];
    }
  }

  momentum_place place_;
  float momentum_;
  rate_schedule rate_;
  std::size_t step_ = 0;
  std::vector<float> velocity_;
};

}  // namespace mnist

#endif  // MNIST_OPTIMIZER_HPP
