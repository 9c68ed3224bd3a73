// SPDX-License-Identifier: BSL-1.0
/// \file
/// Data-parallel training: every rank runs this loop; only `reduce` talks to the others.
#ifndef MNIST_TRAIN_HPP
#define MNIST_TRAIN_HPP

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "mnist/augment.hpp"
#include "mnist/idx.hpp"
#include "mnist/network.hpp"
#include "mnist/optimizer.hpp"
#include "mnist/options.hpp"
#include "mnist/random.hpp"
#include "mnist/sampler.hpp"

namespace mnist {

/// What one reduction cost this rank.
struct reduction_cost {
  std::uint64_t wire_bytes = 0;  ///< sent by this rank
  double select_seconds = 0;
  double exchange_seconds = 0;
  double other_seconds = 0;  ///< the rest of the reduction
  double density = 1;        ///< share of the gradient that this rank selected
  double rows_selected = 1;  ///< share of the gradient's rows that have an entry in the selection
  double rows_applied = 1;   ///< and in the result
};

/// Replaces this rank's gradient by the mean over ranks; the same values on every rank, bit for bit.
template <class R>
concept reduction_step = requires(R reduce, std::span<float> gradient) {
  { reduce(gradient) } -> std::convertible_to<reduction_cost>;
};

/// What a training came to. Costs are those of this rank, the mean over its steps.
struct run_result {
  double accuracy = 0;  ///< on the test digits, in [0, 1]; the same on every rank
  double loss = 0;      ///< mean over this rank's examples of the last epoch
  std::size_t parameters = 0;
  std::size_t steps = 0;
  double wire_bytes = 0;       ///< sent, per step
  double compute_seconds = 0;  ///< the network and the optimizer, per step
  double select_seconds = 0;
  double exchange_seconds = 0;
  double other_seconds = 0;
  double density = 0;        ///< selected, of the values
  double rows_selected = 0;  ///< of the rows
  double rows_applied = 0;
};

/// Trains `model` with the rate, momentum, epochs, batch and seed of `chosen`; its other options are for `reduce`.
///
/// Collective: all ranks call it with equal models and options. Ranks start equal and apply equal steps, so they stay
/// equal without ever comparing parameters. `print(std::string_view)` gets a line an epoch, on rank 0 alone.
/// Throws what `reduce` throws, and std::runtime_error when the batches do not fit the data.
template <network Network, reduction_step Reduce, std::invocable<std::string_view> Print>
run_result train(Network& model, data_set const& data, options const& chosen, int rank, int ranks, Reduce&& reduce,
                 Print&& print) {
  using clock = std::chrono::steady_clock;
  auto const seconds_since = [](clock::time_point start) {
    return std::chrono::duration<double>{clock::now() - start}.count();
  };
  sampler batches{data.train.size(), chosen.batch, rank, ranks, chosen.seed};
  std::size_t const steps_per_epoch = batches.steps_per_epoch();
  std::size_t const total_steps = steps_per_epoch * chosen.epochs;
  optimizer descent{model.parameters().size(),
                    momentum_of(chosen),
                    chosen.momentum,
                    {.peak = chosen.rate, .warm_up_steps = total_steps / 10, .total_steps = total_steps}};
  digits batch;
  run_result result{.parameters = model.parameters().size(), .steps = total_steps};

  for (std::size_t epoch = 0; epoch < chosen.epochs; ++epoch) {
    auto const epoch_start = clock::now();
    double loss = 0;
    batches.start_epoch(epoch);
    for (std::size_t step = 0; step < steps_per_epoch; ++step) {
      auto const step_start = clock::now();
      gather_moved(data.train, batches(step), mix(chosen.seed, epoch), batch);
      loss += model.loss_and_gradient(batch);
      descent.before_reduction(model.gradient());
      auto const reduction_start = clock::now();
      reduction_cost const cost = reduce(model.gradient());
      double const reduction_seconds = seconds_since(reduction_start);
      descent.apply(model.parameters(), model.gradient());

      result.compute_seconds += seconds_since(step_start) - reduction_seconds;
      result.wire_bytes += static_cast<double>(cost.wire_bytes);
      result.select_seconds += cost.select_seconds;
      result.exchange_seconds += cost.exchange_seconds;
      result.other_seconds += cost.other_seconds;
      result.density += cost.density;
      result.rows_selected += cost.rows_selected;
      result.rows_applied += cost.rows_applied;
    }
    result.loss = loss / static_cast<double>(steps_per_epoch);
    bool const last = epoch + 1 == chosen.epochs;
    if (rank == 0 || last) result.accuracy = model.accuracy(data.test);
    if (rank == 0) {
      char line[128];
      std::snprintf(line, sizeof line, "  epoch %3zu of %zu   loss %7.4f   test accuracy %5.1f %%   %5.1f s", epoch + 1,
                    chosen.epochs, result.loss, 100 * result.accuracy, seconds_since(epoch_start));
      print(std::string_view{line});
    }
  }
  for (double* const sum :
       {&result.wire_bytes, &result.compute_seconds, &result.select_seconds, &result.exchange_seconds,
        &result.other_seconds, &result.density, &result.rows_selected, &result.rows_applied}) {
    *sum /= static_cast<double>(total_steps);
  }
  return result;
}

}  // namespace mnist

#endif  // MNIST_TRAIN_HPP
