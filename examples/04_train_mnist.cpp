// SPDX-License-Identifier: BSL-1.0
// Data-parallel training on handwritten digits over MPI, its gradients reduced by the exchange that the options name.
// mpiexec -n 4 04_train_mnist --compare trains with dense, Ok-Topk, and Ok-Topk layer by layer; --help lists the options.

#include <topsum/topsum.hpp>
#include <topsum/transport/mpi.hpp>

#include "mnist/convolutional_network.hpp"
#include "mnist/perceptron.hpp"
#include "mnist/table.hpp"
#include "mnist/train.hpp"

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using reduce_function = std::function<mnist::reduction_cost(std::span<float>)>;

/// A plan as a function of the gradient. The stages are chosen here, at run time; each branch is a pipeline of its own.
template <class... Stages>
reduce_function reduce_with(topsum::mpi::communicator const& comm, topsum::layout const& shapes,
                            Stages const&... stages) {
  using plan_type = decltype(topsum::plan_allreduce<float>(comm, shapes, topsum::row_coverage{}, stages...));
  auto plan = std::make_shared<plan_type>(
      topsum::plan_allreduce<float>(comm, shapes, topsum::row_coverage{}, stages...));
  return [plan](std::span<float> gradient) {
    topsum::report const r = (*plan)(gradient);
    return mnist::reduction_cost{r.bytes,
                                 r.select_seconds,
                                 r.exchange_seconds,
                                 r.apply_seconds,
                                 r.effective_density(),
                                 r.selected_coverage.value_or(1),
                                 r.coverage.value_or(1)};
  };
}

template <class Rule>
reduce_function choose_ok_topk(mnist::options const& chosen, topsum::mpi::communicator const& comm,
                               topsum::layout const& shapes, Rule const& rule) {
  if (chosen.policy == mnist::policy_kind::layer_wise)
    return reduce_with(comm, shapes, topsum::layer_wise{rule}, topsum::ok_topk{});
  return reduce_with(comm, shapes, topsum::global{rule}, topsum::ok_topk{});
}

reduce_function choose_gather_all(mnist::options const& chosen, topsum::mpi::communicator const& comm,
                                  topsum::layout const& shapes, std::uint64_t total_steps) {
  topsum::top_k const rule{.density = chosen.density};
  topsum::gather_all const exchange;
  switch (chosen.policy) {
    case mnist::policy_kind::global: return reduce_with(comm, shapes, topsum::global{rule}, exchange);
    case mnist::policy_kind::layer_wise: return reduce_with(comm, shapes, topsum::layer_wise{rule}, exchange);
    case mnist::policy_kind::all_dimension: return reduce_with(comm, shapes, topsum::all_dimension{rule}, exchange);
    case mnist::policy_kind::adtopk: break;
  }
  return reduce_with(comm, shapes, topsum::adtopk{.density = chosen.density, .total_steps = total_steps}, exchange);
}

reduce_function choose(mnist::options const& chosen, topsum::mpi::communicator const& comm,
                       topsum::layout const& shapes, std::uint64_t total_steps) {
  topsum::top_k const exact{.density = chosen.density};
  switch (chosen.exchange) {
    case mnist::exchange_kind::dense: return reduce_with(comm, shapes, topsum::dense{});
    case mnist::exchange_kind::gather_all: return choose_gather_all(chosen, comm, shapes, total_steps);
    case mnist::exchange_kind::interleaved_quota: return reduce_with(comm, shapes, exact, topsum::interleaved_quota{});
    case mnist::exchange_kind::ok_topk: break;
  }
  if (chosen.rule == mnist::rule_kind::top_k) return choose_ok_topk(chosen, comm, shapes, exact);
  return choose_ok_topk(chosen, comm, shapes, topsum::reused_threshold{.density = chosen.density});
}

topsum::layout layout_of(std::vector<mnist::named_tensor> const& tensors) {
  std::vector<topsum::tensor> shapes;
  for (auto const& t : tensors) shapes.push_back({t.name, topsum::extents{t.extents}});
  return topsum::layout{shapes};
}

void print(std::string_view line) {
  std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

template <class Network>
mnist::run_result train_one(std::string const& name, mnist::options const& chosen, mnist::data_set const& data,
                            topsum::mpi::communicator const& comm) {
  Network model{chosen.seed};
  if (comm.rank() == 0)
    print(name + ", " + std::to_string(comm.size()) + " ranks, " + std::to_string(model.parameters().size()) +
          " parameters");
  mnist::sampler const batches{data.train.size(), chosen.batch, comm.rank(), comm.size(), chosen.seed};
  auto const reduce = choose(chosen, comm, layout_of(model.tensors()), batches.steps_per_epoch() * chosen.epochs);
  auto const result = mnist::train(model, data, chosen, comm.rank(), comm.size(), reduce, print);
  if (comm.rank() == 0 && chosen.exchange != mnist::exchange_kind::dense) print(mnist::format_selection(result));
  return result;
}

void train_all(mnist::options const& chosen, topsum::mpi::communicator const& comm) {
  mnist::data_set const data = mnist::read_data_set(chosen.data);
  std::vector<mnist::table_row> rows;
  for (auto const& [name, options] : mnist::runs_of(chosen)) {
    bool const convolutional = options.network == mnist::network_kind::convolutional;
    rows.push_back({name, convolutional ? train_one<mnist::convolutional_network>(name, options, data, comm)
                                        : train_one<mnist::multilayer_perceptron>(name, options, data, comm)});
  }
  if (comm.rank() == 0) print("\n" + mnist::format_table(rows, comm.size()));
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0;
  try {
    topsum::mpi::session mpi{argc, argv};
    auto const comm = mpi.world();
    rank = comm.rank();
    auto const chosen = mnist::parse_options(
        std::span<char const* const>{argv + 1, static_cast<std::size_t>(argc - 1)});
    if (chosen.help) {
      if (rank == 0) print(mnist::usage);
      return 0;
    }
    train_all(chosen, comm);
    return 0;
  } catch (mnist::option_error const& e) {
    if (rank == 0) std::fprintf(stderr, "04_train_mnist: %s\n", e.what());
    return mnist::option_error::exit_code;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "04_train_mnist, rank %d: %s\n", rank, e.what());
    return 1;
  }
}
