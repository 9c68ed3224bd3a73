// SPDX-License-Identifier: BSL-1.0
/// \file
/// The door: `plan_allreduce` composes stages into a plan, a call of the plan runs one step.
#ifndef TOPSUM_ALLREDUCE_HPP
#define TOPSUM_ALLREDUCE_HPP

#include <cstddef>
#include <cstdint>
#include <utility>

#include <topsum/backend/host.hpp>
#include <topsum/codec/raw.hpp>
#include <topsum/concepts.hpp>
#include <topsum/detail/keywords.hpp>
#include <topsum/exchange/ok_topk.hpp>
#include <topsum/layout.hpp>
#include <topsum/plan.hpp>
#include <topsum/reduction/mean.hpp>
#include <topsum/residual/error_feedback.hpp>
#include <topsum/residual/no_residual.hpp>
#include <topsum/select/global.hpp>
#include <topsum/select/top_k.hpp>

namespace topsum {

namespace detail {

/// Open slots: ok_topk over global{top_k{}} at 1 %, with error feedback (none under `dense`), raw, the mean, on the host.
template <class... S>
struct chosen {
  using exchange = pick_t<exchange_tag, ok_topk, S...>;
  using selection = pick_t<selection_tag, global<top_k>, S...>;
  using residual = pick_t<
      residual_tag, std::conditional_t<exchange::kind == exchange_kind::dense, no_residual, error_feedback>, S...>;
  using codec = pick_t<codec_tag, raw, S...>;
  using reduction = pick_t<reduction_tag, mean, S...>;
  using backend = pick_t<backend_tag, host, S...>;
  using index = typename pick_t<index_tag, topsum::index<std::uint32_t>, S...>::type;
};

template <class... S>
inline constexpr bool every_keyword_has_a_slot = (plan_slots::hold<S> && ...);

template <class... S>
inline constexpr bool every_slot_is_filled_once = filled<selection_tag, S...> <= 1 && filled<residual_tag, S...> <= 1 &&
                                                  filled<codec_tag, S...> <= 1 && filled<exchange_tag, S...> <= 1 &&
                                                  filled<reduction_tag, S...> <= 1 && filled<backend_tag, S...> <= 1 &&
                                                  filled<index_tag, S...> <= 1 && filled<nonfinite_tag, S...> <= 1 &&
                                                  filled<coverage_tag, S...> <= 1;

template <class T, class C, class... S>
[[nodiscard]] consteval bool is_plannable() {
  if constexpr (!value_type<T> || !transport<C> || !every_keyword_has_a_slot<S...> ||
                !every_slot_is_filled_once<S...>) {
    return false;
  } else if constexpr (!exchange<pick_t<exchange_tag, ok_topk, S...>>) {
    return false;
  } else {
    using choice = chosen<S...>;
    using B = typename choice::backend;
    using I = typename choice::index;
    if constexpr (!backend<B> || !index_type<I>) {
      return false;
    } else {
      return reaches<C, B> && selection_policy<typename choice::selection, B, T, I> &&
             residual_store<typename choice::residual, B, T, I> && codec<typename choice::codec, B, wide_t<T>, I> &&
             reduction<typename choice::reduction>;
    }
  }
}

}  // namespace detail

/// Whether `plan_allreduce<T>(C, layout, S...)` compiles.
template <class T, class C, class... S>
concept plannable = detail::is_plannable<T, C, S...>();

/// Makes a plan over gradients of T: checks every stage, agrees with all ranks on what they are about to do, and allocates all memory.
///
/// - `comm`: a transport's handle (`topsum::local::communicator`, `topsum::mpi::communicator`, ...); a plan keeps a copy.
/// - `shapes`: the layout of the gradient, or a plain number of values.
/// - `stages`: one keyword a slot, in any order: a selection policy (a rule alone means `global{rule}`), a residual store, a
///   codec, an exchange, a reduction, a backend, `topsum::index<I>{}`, `topsum::on_nonfinite::...`, `topsum::row_coverage{}`. Open slots take
///   `global{top_k{.density = 0.01}}`, `error_feedback{}` (`no_residual{}` under `dense`), `raw{}`, `ok_topk{}`, `mean{}`,
///   `host{}`, `index<std::uint32_t>{}`, `on_nonfinite::error`.
///
/// Collective: every rank of `comm` must call it, in the same order as its other plans. Cost: 48 bytes to each peer. Memory:
/// n values (2n with `.rollback`) + O(k), allocated here and nowhere later; see `plan::memory_bytes`.
/// Throws topsum::error on every rank alike: errc::bad_argument (a parameter), errc::mismatch (ranks differ in n, layout,
/// stages, types or k), errc::out_of_memory; errc::transport or errc::timeout where ranks cannot be reached.
template <class T, class C, class... S>
[[nodiscard]] auto plan_allreduce(C comm, layout const& shapes, S const&... stages) {
  static_assert(value_type<T>,
                "topsum: the value type T of plan_allreduce<T> is not a gradient's value: use float, double, "
                "topsum::half or topsum::bfloat16, or specialise topsum::value_traits for it");
  static_assert(transport<C>,
                "topsum: the first argument of plan_allreduce is not a transport: pass a topsum::local::communicator "
                "or a topsum::mpi::communicator");
  static_assert(detail::every_keyword_has_a_slot<S...>,
                "topsum: an argument of plan_allreduce is not a stage: every stage names its slot with `using "
                "stage_tag = topsum::selection_tag;` or the like");
  static_assert(detail::filled<selection_tag, S...> <= 1,
                "topsum: the selection slot is given twice: pass one selection policy, or one rule");
  static_assert(detail::filled<residual_tag, S...> <= 1,
                "topsum: the residual slot is given twice: pass one residual store");
  static_assert(detail::filled<codec_tag, S...> <= 1, "topsum: the codec slot is given twice: pass one codec");
  static_assert(detail::filled<exchange_tag, S...> <= 1, "topsum: the exchange slot is given twice: pass one exchange");
  static_assert(detail::filled<reduction_tag, S...> <= 1,
                "topsum: the reduction slot is given twice: pass one reduction");
  static_assert(detail::filled<backend_tag, S...> <= 1, "topsum: the backend slot is given twice: pass one backend");
  static_assert(detail::filled<index_tag, S...> <= 1,
                "topsum: the index type is given twice: pass one topsum::index<I>{}");
  static_assert(detail::filled<nonfinite_tag, S...> <= 1,
                "topsum: the non-finite policy is given twice: pass one topsum::on_nonfinite");
  static_assert(detail::filled<coverage_tag, S...> <= 1,
                "topsum: the row coverage is asked for twice: pass one topsum::row_coverage");
  if constexpr (value_type<T> && transport<C> && detail::every_keyword_has_a_slot<S...> &&
                detail::every_slot_is_filled_once<S...>) {
    using X = detail::pick_t<exchange_tag, ok_topk, S...>;
    static_assert(
        exchange<X>,
        "topsum: the exchange slot's stage does not satisfy topsum::exchange; the lines below name what is missing");
    if constexpr (exchange<X>) {
      using choice = detail::chosen<S...>;
      using B = typename choice::backend;
      using I = typename choice::index;
      static_assert(
          backend<B>,
          "topsum: the backend slot's stage does not satisfy topsum::backend; the lines below name what is missing");
      static_assert(index_type<I>, "topsum: the index type is neither std::uint32_t nor std::uint64_t");
      if constexpr (backend<B> && index_type<I>) {
        static_assert(
            !stages_data<C, B>,
            "topsum: this transport moves device memory (NCCL), and the plan's data are in host memory: pass a "
            "CUDA backend with it, or for host memory topsum::mpi::communicator");
        static_assert(
            reaches<C, B>,
            "topsum: the transport cannot move the backend's memory: host memory travels by any transport, device "
            "memory travels by topsum::nccl::communicator, and between threads by topsum::local; the lines "
            "below name what is missing");
        static_assert(selection_policy<typename choice::selection, B, T, I>,
                      "topsum: the selection slot's stage does not satisfy topsum::selection_policy (or its rule "
                      "topsum::selection_rule); the lines below name what is missing");
        static_assert(residual_store<typename choice::residual, B, T, I>,
                      "topsum: the residual slot's stage does not satisfy topsum::residual_store; the lines below name "
                      "what is missing");
        static_assert(
            codec<typename choice::codec, B, wide_t<T>, I>,
            "topsum: the codec slot's stage does not satisfy topsum::codec; the lines below name what is missing");
        static_assert(reduction<typename choice::reduction>,
                      "topsum: the reduction slot's stage does not satisfy topsum::reduction; the lines below name "
                      "what is missing");
        if constexpr (plannable<T, C, S...>) {
          using plan_type = plan<T, C, B, I, typename choice::selection, typename choice::residual,
                                 typename choice::codec, X, typename choice::reduction>;
          return plan_type{std::move(comm),
                           shapes,
                           detail::pick<backend_tag, B>(stages...),
                           detail::pick<selection_tag, global<top_k>>(stages...),
                           detail::pick<residual_tag, typename choice::residual>(stages...),
                           detail::pick<codec_tag, raw>(stages...),
                           detail::pick<exchange_tag, ok_topk>(stages...),
                           detail::pick<reduction_tag, mean>(stages...),
                           detail::pick<nonfinite_tag, on_nonfinite>(stages...),
                           detail::pick_optional<coverage_tag, row_coverage>(stages...)};
        }
      }
    }
  }
}

}  // namespace topsum

#endif
