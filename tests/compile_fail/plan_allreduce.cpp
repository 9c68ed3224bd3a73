// SPDX-License-Identifier: BSL-1.0
// What the compiler says first when an argument of plan_allreduce is wrong.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <topsum/topsum.hpp>
#include <vector>

// A policy of a user, whole or lacking `select`.
struct chosen_policy {
  using stage_tag = topsum::selection_tag;
  static constexpr std::string_view name = "chosen_policy";
  static constexpr bool fixed_count = false;
  template <class B, class R>
  struct state {
    state(B&, std::span<topsum::piece const>) {}
  };
  void validate() const {}
  std::vector<topsum::piece> pieces(topsum::layout const&) const { return {}; }
#ifdef CASE_policy_without_select
  // case: policy_without_select
  // expect: topsum: the selection slot's stage does not satisfy topsum::selection_policy
  // expect: select
#else
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<topsum::piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              topsum::entries_view<B, R, I>) const {}
#endif
};

struct chosen_rule {
  using stage_tag = topsum::rule_tag;
  static constexpr std::string_view name = "chosen_rule";
  static constexpr bool fixed_count = false;
  template <class B, class R>
  struct state {
    state(B&, std::span<topsum::piece const>) {}
  };
  void validate() const {}
  std::size_t count(std::size_t size) const { return size; }
  std::size_t capacity(std::size_t size) const { return size; }
#ifdef CASE_rule_without_select
  // case: rule_without_select
  // expect: topsum: the selection slot's stage does not satisfy topsum::selection_policy .or its rule topsum::selection_rule.
  // expect: select
#else
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<topsum::piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              topsum::entries_view<B, R, I>) const {}
#endif
};

// A rule that keeps a number and does not show it.
struct secretive_rule : chosen_rule {
  template <class B, class R>
  struct state : chosen_rule::state<B, R> {
    using chosen_rule::state<B, R>::state;
    int kept = 0;
  };
};

struct chosen_residual : topsum::no_residual {
#ifdef CASE_residual_without_state
  // case: residual_without_state
  // expect: topsum: the residual slot's stage does not satisfy topsum::residual_store
  template <class B, class T>
  struct state {};
#endif
};

// A residual store that cannot take a step back.
struct onward_residual : topsum::no_residual {
  void discard() const = delete;
};

struct chosen_codec : topsum::raw {
#ifdef CASE_codec_of_ints
  // case: codec_of_ints
  // expect: topsum: the codec slot's stage does not satisfy topsum::codec
  template <class R, class I>
  int bytes(std::size_t, std::size_t, std::size_t) const {
    return 0;
  }
#endif
};

struct chosen_exchange : topsum::gather_all {
#ifdef CASE_exchange_without_kind
  // case: exchange_without_kind
  // expect: topsum: the exchange slot's stage does not satisfy topsum::exchange
  struct unknown {};
  static constexpr unknown kind{};
#endif
};

struct chosen_reduction : topsum::sum {
#ifdef CASE_reduction_without_divisor
  // case: reduction_without_divisor
  // expect: topsum: the reduction slot's stage does not satisfy topsum::reduction
  void divisor(int) const {}
#endif
};

struct chosen_backend : topsum::host {
#ifdef CASE_backend_without_verb
  // case: backend_without_verb
  // expect: topsum: the backend slot's stage does not satisfy topsum::backend
  void merge_sum() {}
#endif
};

struct mute {
  int rank() const { return 0; }
  int size() const { return 1; }
};

void door(topsum::local::communicator comm, std::vector<float>& gradient) {
  using topsum::plan_allreduce;

#ifdef CASE_value_type
  // case: value_type
  // expect: topsum: the value type T of plan_allreduce<T> is not a gradient's value
  static_cast<void>(plan_allreduce<int>(comm, 10));
#endif
#ifdef CASE_not_a_transport
  // case: not_a_transport
  // expect: topsum: the first argument of plan_allreduce is not a transport
  static_cast<void>(plan_allreduce<float>(7, 10));
#endif
#ifdef CASE_unreachable
  // case: unreachable
  // expect: topsum: the transport cannot move the backend's memory
  static_cast<void>(plan_allreduce<float>(mute{}, 10));
#endif
#ifdef CASE_not_a_stage
  // case: not_a_stage
  // expect: topsum: an argument of plan_allreduce is not a stage: every stage names its slot
  static_cast<void>(plan_allreduce<float>(comm, 10, 0.01));
#endif
#ifdef CASE_selection_twice
  // case: selection_twice
  // expect: topsum: the selection slot is given twice: pass one selection policy, or one rule
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::top_k{}, topsum::layer_wise{topsum::top_k{}}));
#endif
#ifdef CASE_residual_twice
  // case: residual_twice
  // expect: topsum: the residual slot is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::error_feedback{}, topsum::no_residual{}));
#endif
#ifdef CASE_codec_twice
  // case: codec_twice
  // expect: topsum: the codec slot is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::raw{}, topsum::raw{}));
#endif
#ifdef CASE_exchange_twice
  // case: exchange_twice
  // expect: topsum: the exchange slot is given twice: pass one exchange
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::ok_topk{}, topsum::dense{}));
#endif
#ifdef CASE_reduction_twice
  // case: reduction_twice
  // expect: topsum: the reduction slot is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::sum{}, topsum::mean{}));
#endif
#ifdef CASE_backend_twice
  // case: backend_twice
  // expect: topsum: the backend slot is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::host{}, topsum::host{}));
#endif
#ifdef CASE_index_twice
  // case: index_twice
  // expect: topsum: the index type is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::index<std::uint64_t>{}, topsum::index<std::uint32_t>{}));
#endif
#ifdef CASE_nonfinite_twice
  // case: nonfinite_twice
  // expect: topsum: the non-finite policy is given twice
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::on_nonfinite::drop, topsum::on_nonfinite::error));
#endif
#ifdef CASE_index_type
  // case: index_type
  // expect: topsum: the index type is neither std::uint32_t nor std::uint64_t
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::index<std::uint16_t>{}));
#endif

  static_cast<void>(plan_allreduce<float>(comm, 10, chosen_policy{}, chosen_exchange{}));
  static_cast<void>(
      plan_allreduce<float>(comm, 10, chosen_rule{}, chosen_residual{}, chosen_codec{}, chosen_reduction{}));

  auto sparse = plan_allreduce<float>(comm, gradient.size());
  auto dense = plan_allreduce<float>(comm, gradient.size(), topsum::dense{});
  static_cast<void>(sparse.sparse(gradient));
  static_cast<void>(sparse.residual());
#ifdef CASE_sparse_result_of_dense
  // case: sparse_result_of_dense
  // expect: topsum: the result of the dense exchange is dense
  static_cast<void>(dense.sparse(gradient));
#endif
#ifdef CASE_residual_of_dense
  // case: residual_of_dense
  // expect: topsum: this plan keeps no residual; pass topsum::error_feedback
  static_cast<void>(dense.residual());
#endif
  auto onward = plan_allreduce<float>(comm, gradient.size(), onward_residual{});
  dense.discard();
#ifdef CASE_discard_of_a_store_that_cannot
  // case: discard_of_a_store_that_cannot
  // expect: topsum: this plan's residual store cannot discard a step
  onward.discard();
#else
  static_cast<void>(onward.save());
#endif
#ifdef CASE_state_that_is_not_shown
  // case: state_that_is_not_shown
  // expect: topsum: the selection slot's stage does not satisfy topsum::selection_policy
  // expect: visitable_state
  static_cast<void>(plan_allreduce<float>(comm, 10, secretive_rule{}));
#endif
#ifdef CASE_contributors_of_sums
  // case: contributors_of_sums
  // expect: topsum: contributor_mean asks how many ranks sent each entry, and this exchange cannot tell
  static_cast<void>(plan_allreduce<float>(comm, 10, topsum::contributor_mean{}));
#endif
#ifdef CASE_hierarchical_of_dense
  // case: hierarchical_of_dense
  // expect: topsum: hierarchical is made of exchanges of selected entries
  topsum::hierarchical const dense_inside{topsum::dense{}, topsum::ok_topk{}, {.ranks_per_node = 2}};
  static_cast<void>(plan_allreduce<float>(comm, 10, dense_inside));
#endif
#ifdef CASE_gradient_of_another_type
  // case: gradient_of_another_type
  // expect: topsum: this plan's gradients are in its backend's memory, as mutable values of the plan's type
  std::vector<double> doubles(gradient.size());
  static_cast<void>(dense(std::span<double>{doubles}));
#endif
#ifdef CASE_backend_without_verb
  static_cast<void>(plan_allreduce<float>(comm, 10, chosen_backend{}));
#endif
}
