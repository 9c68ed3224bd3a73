// SPDX-License-Identifier: BSL-1.0
// Which types are accepted in which slot: the smallest model of each concept is, what lacks one expression is not.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <topsum/topsum.hpp>
#include <vector>

namespace {

using topsum::entries_run;
using topsum::entries_view;
using topsum::host;
using topsum::nonfinite_record;
using topsum::piece;
using topsum::plannable;
using comm = topsum::local::communicator;

// What a near miss lacks.
enum class lacks { nothing, tag, name, validate, one, two, three, four, five, six };

// ---------------------------------------------------------------------------------------------------------------------
// Values and indices

struct not_a_value {};
struct owning {
  std::string text;
};
struct one_way {
  explicit operator float() const;
};
template <std::uint32_t number>
struct coded {
  explicit coded(float = 0);
  explicit operator float() const;
};
}  // namespace

template <>
struct topsum::value_traits<owning> {
  using wide = float;
  static constexpr std::uint32_t code = 99;
};
template <>
struct topsum::value_traits<one_way> {
  using wide = float;
  static constexpr std::uint32_t code = 98;
};
template <std::uint32_t number>
struct topsum::value_traits<coded<number>> {
  using wide = float;
  static constexpr std::uint32_t code = number;
};

namespace {

static_assert(topsum::value_type<float> && topsum::value_type<double>);
static_assert(topsum::value_traits<owning>::code == 99);
static_assert(!topsum::value_type<int> && !topsum::value_type<bool> && !topsum::value_type<not_a_value>);
static_assert(!topsum::value_type<long double> && !topsum::value_type<float const*>);
static_assert(!topsum::value_type<owning>, "bytes must be all there is of a value");
static_assert(!topsum::value_type<one_way>, "sums must become values again");
static_assert(topsum::value_type<coded<1>> && topsum::value_type<coded<255>>);
static_assert(!topsum::value_type<coded<0>> && !topsum::value_type<coded<256>>, "a code is a byte that is not 0");
static_assert(topsum::value_type<topsum::half> && topsum::value_type<topsum::bfloat16>);
static_assert(std::same_as<topsum::wide_t<topsum::half>, float> &&
              std::same_as<topsum::wide_t<topsum::bfloat16>, float>);
static_assert(topsum::value_traits<topsum::half>::code != topsum::value_traits<topsum::bfloat16>::code);
#if defined(__FLT16_MANT_DIG__)
static_assert(topsum::value_type<_Float16>);
static_assert(topsum::value_traits<_Float16>::code == topsum::value_traits<topsum::half>::code, "the same format");
#endif
static_assert(topsum::list_backend<host, float, std::uint32_t, topsum::half> &&
              topsum::list_backend<host, float, std::uint64_t, topsum::bfloat16>);
static_assert(!topsum::list_backend<host, double, std::uint32_t, topsum::half>, "a half's sums are floats");
static_assert(topsum::index_type<std::uint32_t> && topsum::index_type<std::uint64_t>);
static_assert(!topsum::index_type<int> && !topsum::index_type<std::uint16_t> && !topsum::index_type<std::int64_t> &&
              !topsum::index_type<float>);

// ---------------------------------------------------------------------------------------------------------------------
// Rules and policies

template <lacks what, class Tag = topsum::rule_tag>
struct rule {
  using stage_tag = std::conditional_t<what == lacks::tag, void, Tag>;
  static constexpr std::string_view name = "rule";
  static constexpr bool fixed_count = false;
  template <class B, class R>
  struct state {
    state(B&, std::span<piece const>) {}
  };
  void validate() const
    requires(what != lacks::validate)
  {}
  std::size_t count(std::size_t size) const
    requires(what != lacks::one)
  {
    return size;
  }
  std::size_t capacity(std::size_t size) const
    requires(what != lacks::two)
  {
    return size;
  }
  std::vector<piece> pieces(topsum::layout const&) const
    requires(what != lacks::three)
  {
    return {};
  }
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              entries_view<B, R, I>) const
    requires(what != lacks::four)
  {}
};

// `count` of another type; a state that cannot be made; a state that select may not write.
struct rule_of_ints : rule<lacks::one> {
  int count(std::size_t) const { return 0; }
};
struct stateless_rule : rule<lacks::four> {
  template <class B, class R>
  struct state {};
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              entries_view<B, R, I>) const {}
};
struct impure_rule : rule<lacks::four> {
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<piece const>, std::uint64_t, state<B, R>&, state<B, R>&,
              entries_view<B, R, I>) const {}
};
// A state that holds something and does not show it, and one that does.
struct secretive_rule : rule<lacks::four> {
  template <class B, class R>
  struct state {
    state(B&, std::span<piece const>) {}
    int kept = 0;
  };
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              entries_view<B, R, I>) const {}
};
struct open_rule : rule<lacks::four> {
  template <class B, class R>
  struct state {
    state(B&, std::span<piece const>) {}
    template <class V>
    void visit(V& visitor) {
      visitor("kept", kept);
    }
    int kept = 0;
  };
  template <class B, class Source, class R, class I>
  void select(B&, Source const&, std::span<piece const>, std::uint64_t, state<B, R> const&, state<B, R>&,
              entries_view<B, R, I>) const {}
};
// Only for host memory: it is right there, and wrong elsewhere.
struct nameless_rule {
  using stage_tag = topsum::rule_tag;
};

template <lacks what>
concept rule_accepted = topsum::selection_rule<rule<what>, host>;
static_assert(rule_accepted<lacks::nothing> && rule_accepted<lacks::three>);
static_assert(!rule_accepted<lacks::tag> && !rule_accepted<lacks::validate> && !rule_accepted<lacks::one> &&
              !rule_accepted<lacks::two> && !rule_accepted<lacks::four>);
static_assert(!topsum::selection_rule<rule_of_ints, host> && !topsum::selection_rule<stateless_rule, host> &&
              !topsum::selection_rule<impure_rule, host>);
static_assert(topsum::selection_rule<open_rule, host> && !topsum::selection_rule<secretive_rule, host>);
static_assert(!topsum::selection_rule<nameless_rule, host>);
static_assert(!topsum::selection_rule<rule<lacks::nothing, topsum::selection_tag>, host>, "a policy is no rule");

template <lacks what>
using policy = rule<what, topsum::selection_tag>;
template <lacks what>
concept policy_accepted = topsum::selection_policy<policy<what>, host>;
static_assert(policy_accepted<lacks::nothing> && policy_accepted<lacks::one> && policy_accepted<lacks::two>);
static_assert(!policy_accepted<lacks::tag> && !policy_accepted<lacks::validate> && !policy_accepted<lacks::three> &&
              !policy_accepted<lacks::four>);
static_assert(!topsum::selection_policy<rule<lacks::nothing>, host>, "a rule is no policy; plan_allreduce wraps it");

static_assert(topsum::selection_scope<topsum::global<rule<lacks::nothing>>, host>);
static_assert(topsum::selection_scope<topsum::layer_wise<topsum::top_k>, host, double, std::uint64_t>);
static_assert(!topsum::selection_scope<policy<lacks::nothing>, host>, "it applies no rule");
static_assert(!topsum::selection_scope<topsum::global<rule<lacks::four>>, host>);

static_assert(plannable<float, comm, rule<lacks::nothing>>);
static_assert(plannable<float, comm, policy<lacks::nothing>>);
static_assert(!plannable<float, comm, rule<lacks::tag>> && !plannable<float, comm, rule<lacks::validate>>);
static_assert(!plannable<float, comm, rule<lacks::one>> && !plannable<float, comm, rule<lacks::two>> &&
              !plannable<float, comm, rule<lacks::four>>);
static_assert(!plannable<float, comm, policy<lacks::three>> && !plannable<float, comm, policy<lacks::four>>);
static_assert(!plannable<float, comm, topsum::layer_wise<rule<lacks::four>>>);

// ---------------------------------------------------------------------------------------------------------------------
// Residual stores

template <lacks what>
struct store {
  using stage_tag = std::conditional_t<what == lacks::tag, topsum::codec_tag, topsum::residual_tag>;
  static constexpr std::string_view name = "store";
  static constexpr bool keeps = false;
  template <class B, class T>
  struct state {
    state(B&, std::size_t, store const&) {}
  };
  void validate() const {}
  template <class B, class T>
  topsum::source<B, T, topsum::plain_gradient<T>> accumulate(B&, typename B::template span<T const> gradient,
                                                             state<B, T>&,
                                                             typename B::template span<nonfinite_record> fault) const
    requires(what != lacks::one)
  {
    return {gradient, {}, {}, {}, fault};
  }
  template <class B, class T, class R, class I>
  void keep(B&, state<B, T>&, entries_view<B, R, I>) const
    requires(what != lacks::two)
  {}
  template <class B, class T>
  void keep_dense(B&, state<B, T>&, typename B::template span<topsum::wide_t<T>>) const
    requires(what != lacks::three)
  {}
  template <class B, class T>
  void commit(state<B, T>&) const
    requires(what != lacks::four)
  {}
  template <class B, class T, class R, class I>
  void take_back(B&, state<B, T>&, entries_view<B, R, I>) const
    requires(what != lacks::five)
  {}
};

template <lacks what>
concept store_accepted = topsum::residual_store<store<what>, host>;
static_assert(store_accepted<lacks::nothing> && plannable<float, comm, store<lacks::nothing>>);
static_assert(!store_accepted<lacks::tag> && !store_accepted<lacks::one> && !store_accepted<lacks::two> &&
              !store_accepted<lacks::three> && !store_accepted<lacks::four> && !store_accepted<lacks::five>);
static_assert(!topsum::discarding_store<store<lacks::nothing>, host>, "it need not be able to");
static_assert(topsum::discarding_store<topsum::no_residual, host> &&
              topsum::discarding_store<topsum::error_feedback, host, double> &&
              topsum::discarding_store<topsum::momentum_correction, host> &&
              topsum::discarding_store<topsum::decoupled_momentum, host>);
static_assert(!plannable<float, comm, store<lacks::two>> && !plannable<double, comm, store<lacks::four>>);

// ---------------------------------------------------------------------------------------------------------------------
// Codecs

template <lacks what>
struct coder {
  using stage_tag = topsum::codec_tag;
  static constexpr std::string_view name = "coder";
  static constexpr bool lossless = true;
  void validate() const {}
  template <class R, class I>
  std::size_t bytes(std::size_t, std::size_t, std::size_t) const
    requires(what != lacks::one)
  {
    return 0;
  }
  template <class R, class I>
  std::size_t bytes_at_most(std::size_t, std::size_t, std::size_t) const
    requires(what != lacks::two)
  {
    return 0;
  }
  template <class B, class R, class I>
  void encode(B&, entries_run<B, R, I>, std::size_t, std::size_t, typename B::template span<std::byte>) const
    requires(what != lacks::three)
  {}
  template <class B, class R, class I>
  void decode(B&, typename B::template span<std::byte const>, std::size_t, std::size_t, std::size_t,
              entries_view<B, R, I>, typename B::template span<std::uint32_t>) const
    requires(what != lacks::four)
  {}
};

template <lacks what>
concept coder_accepted = topsum::codec<coder<what>, host>;
static_assert(coder_accepted<lacks::nothing> && plannable<float, comm, coder<lacks::nothing>>);
static_assert(!coder_accepted<lacks::one> && !coder_accepted<lacks::two> && !coder_accepted<lacks::three> &&
              !coder_accepted<lacks::four>);
static_assert(!plannable<float, comm, coder<lacks::one>> && !plannable<float, comm, coder<lacks::four>>);

// ---------------------------------------------------------------------------------------------------------------------
// Exchanges and reductions

struct kindless_exchange {
  using stage_tag = topsum::exchange_tag;
  static constexpr std::string_view name = "kindless";
  void validate() const {}
};
struct named_exchange : kindless_exchange {
  static constexpr topsum::exchange_kind kind = topsum::exchange_kind::union_of;
};
static_assert(topsum::exchange<named_exchange> && !topsum::exchange<kindless_exchange>);
static_assert(topsum::exchange<topsum::dense> && topsum::exchange<topsum::gather_all> &&
              topsum::exchange<topsum::ok_topk>);
static_assert(!plannable<float, comm, kindless_exchange>);

struct divisorless {
  using stage_tag = topsum::reduction_tag;
  static constexpr std::string_view name = "divisorless";
  void validate() const {}
};
struct halving : divisorless {
  double divisor(int) const { return 2; }
};
struct wordy : divisorless {
  std::string divisor(int) const { return "two"; }
};
static_assert(topsum::reduction<halving> && !topsum::reduction<divisorless> && !topsum::reduction<wordy>);
static_assert(plannable<float, comm, halving> && !plannable<float, comm, divisorless> &&
              !plannable<float, comm, wordy>);

// ---------------------------------------------------------------------------------------------------------------------
// Transports

template <lacks what>
struct carrier {
  using ticket = int;
  int rank() const
    requires(what != lacks::one)
  {
    return 0;
  }
  int size() const
    requires(what != lacks::two)
  {
    return 1;
  }
  ticket start(std::span<topsum::transfer<std::span<std::byte const>> const>,
               std::span<topsum::transfer<std::span<std::byte>> const>)
    requires(what != lacks::three)
  {
    return 0;
  }
  void finish(ticket&)
    requires(what != lacks::four)
  {}
};
struct unique_carrier : carrier<lacks::nothing> {
  unique_carrier(unique_carrier&&) = default;
};

static_assert(topsum::transport<carrier<lacks::nothing>> && topsum::transport<carrier<lacks::three>>);
static_assert(!topsum::transport<carrier<lacks::one>> && !topsum::transport<carrier<lacks::two>> &&
              !topsum::transport<unique_carrier> && !topsum::transport<int>);
static_assert(topsum::can_send_recv<carrier<lacks::nothing>> && !topsum::can_send_recv<carrier<lacks::three>> &&
              !topsum::can_send_recv<carrier<lacks::four>>);
static_assert(topsum::reaches<comm, host> && topsum::reaches<topsum::counting<comm>, host>);
static_assert(!topsum::can_all_reduce<comm> && !topsum::can_broadcast<comm> && !topsum::can_all_gather<comm>,
              "local builds its collectives");
static_assert(plannable<float, carrier<lacks::nothing>>);
static_assert(!plannable<float, carrier<lacks::one>> && !plannable<float, carrier<lacks::three>> &&
              !plannable<float, carrier<lacks::four>>);
static_assert(!plannable<float, int> && !plannable<float, unique_carrier>);

// ---------------------------------------------------------------------------------------------------------------------
// The door

using rule_only = topsum::top_k;
using scope = topsum::global<topsum::reused_threshold>;
using u64 = topsum::index<std::uint64_t>;

static_assert(plannable<float, comm>);
static_assert(plannable<double, comm, rule_only>, "a rule alone");
static_assert(plannable<topsum::half, comm> && plannable<topsum::bfloat16, comm, topsum::dense, u64>);
static_assert(plannable<float, comm, scope, topsum::error_feedback, topsum::raw, topsum::ok_topk, topsum::mean, host,
                        u64, topsum::on_nonfinite>);
static_assert(plannable<float, comm, topsum::on_nonfinite, u64, host, topsum::sum, topsum::gather_all, topsum::raw,
                        topsum::no_residual, scope>,
              "any order");
static_assert(plannable<float, topsum::counting<comm>, topsum::dense, topsum::sum>);

static_assert(!plannable<int, comm> && !plannable<long double, comm> && !plannable<not_a_value, comm>);
static_assert(!plannable<float, comm, int> && !plannable<float, comm, not_a_value> &&
              !plannable<float, comm, std::function<void()>>);
static_assert(!plannable<float, comm, rule_only, scope>, "a rule and a policy fill the same slot");
static_assert(!plannable<float, comm, rule_only, rule_only> &&
              !plannable<float, comm, scope, topsum::layer_wise<rule_only>>);
static_assert(!plannable<float, comm, topsum::error_feedback, topsum::no_residual> &&
              !plannable<float, comm, topsum::raw, topsum::raw>);
static_assert(!plannable<float, comm, topsum::ok_topk, topsum::dense> &&
              !plannable<float, comm, topsum::mean, topsum::sum>);
static_assert(!plannable<float, comm, host, host> && !plannable<float, comm, u64, topsum::index<std::uint32_t>> &&
              !plannable<float, comm, topsum::on_nonfinite, topsum::on_nonfinite>);
static_assert(!plannable<float, comm, topsum::index<int>> && !plannable<float, comm, topsum::index<std::uint16_t>>);

// Rules, scopes and options deduce and read as they are said.
static_assert(std::same_as<decltype(topsum::global{topsum::top_k{.density = 0.1}}), topsum::global<topsum::top_k>>);
static_assert(std::same_as<decltype(topsum::layer_wise{topsum::reused_threshold{.every = 3}}),
                           topsum::layer_wise<topsum::reused_threshold>>);

template <class... S>
using plan_of = decltype(topsum::plan_allreduce<float>(std::declval<comm>(), 10, std::declval<S>()...));
static_assert(std::same_as<plan_of<rule_only>, plan_of<topsum::global<rule_only>>>, "a rule alone is global");
static_assert(std::same_as<plan_of<topsum::sum, scope>, plan_of<scope, topsum::sum>>, "order makes no difference");
static_assert(std::same_as<plan_of<>, plan_of<rule_only, topsum::error_feedback, topsum::raw, topsum::ok_topk,
                                              topsum::mean, host, topsum::index<std::uint32_t>>>);
static_assert(std::same_as<plan_of<topsum::dense>, plan_of<topsum::dense, topsum::no_residual>>,
              "nothing is left over under dense");
static_assert(std::movable<plan_of<>> && std::movable<plan_of<topsum::dense>>);
static_assert(plan_of<>::is_sparse && !plan_of<topsum::dense>::is_sparse);

// A layout is made from tensors or from a number.
static_assert(std::convertible_to<int, topsum::layout> && std::convertible_to<std::uint64_t, topsum::layout> &&
              !std::convertible_to<double, topsum::layout>);

}  // namespace

TEST_CASE("what this file asserts holds: it compiled") { CHECK(true); }
