// SPDX-License-Identifier: BSL-1.0
/// \file
/// The plan: stages, transport and all memory, ready to run. Made by `plan_allreduce` (allreduce.hpp).
#ifndef TOPSUM_PLAN_HPP
#define TOPSUM_PLAN_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/concepts.hpp>
#include <topsum/core/dimensions.hpp>
#include <topsum/core/report.hpp>
#include <topsum/detail/checkpoint.hpp>
#include <topsum/detail/plan_memory.hpp>
#include <topsum/error.hpp>
#include <topsum/exchange/channel.hpp>
#include <topsum/layout.hpp>

namespace topsum {

/// A step's result as entries: indices increase, values are reduced (the mean, say). Views the plan's memory, valid until the
/// plan's next call. `size` entries are in use.
template <class B, class R, class I>
struct sparse_result {
  typename B::template span<I const> indices;
  typename B::template span<R const> values;
  topsum::report report;

  [[nodiscard]] std::size_t size() const noexcept { return indices.size(); }
};

/// A sparse allreduce, specialised at compile time for its stages. Movable. One thread at a time.
///
/// T value, C transport, B backend, I index, S selection policy, E residual store, K codec, X exchange, D reduction.
template <class T, class C, class B, class I, class S, class E, class K, class X, class D>
class plan {
 public:
  using value_type = T;
  using wide_type = wide_t<T>;
  using index_type = I;
  using backend_type = B;
  using gradient_span = typename B::template span<T const>;
  using result_span = typename B::template span<T>;
  /// Whether the result exists as entries, so that `sparse` can be called.
  static constexpr bool is_sparse = X::kind != exchange_kind::dense;

  /// Use `plan_allreduce`, which names the slots.
  plan(C comm, layout shapes, B on, S selection, E residual, K codec, X exchange, D reduction, on_nonfinite nonfinite,
       std::optional<row_coverage> coverage)
      : layout_{std::move(shapes)},
        selection_{std::move(selection)},
        residual_{std::move(residual)},
        codec_{std::move(codec)},
        exchange_{std::move(exchange)},
        reduction_{std::move(reduction)},
        nonfinite_{nonfinite},
        coverage_{coverage},
        channel_{std::move(on), typename channel_type::transport_type{std::move(comm)}} {
    wire_header mine{wire_header::kind::construction,
                     errc::none,
                     channel_type::types(value_traits<T>::code, sizeof(I)),
                     0,
                     layout_.size(),
                     layout_.hash(),
                     0};
    mine.b = describe_stages().hash();
    std::string problem;
    try {
      prepare();
      mine.step = shape_.capacity;
    } catch (error const& e) {
      mine.code = e.code();
      problem = std::string{e.what()}.substr(std::string_view{"topsum: "}.size());
    } catch (std::bad_alloc const&) {
      mine.code = errc::out_of_memory;
      problem = detail::sentence("a plan over ", layout_.size(), " values could not allocate its memory");
    } catch (std::exception const& e) {
      mine.code = errc::stage_failed;
      problem = detail::sentence("a stage threw: ", e.what());
    }
    fingerprint_ = channel_.agree(mine, problem);
    if constexpr (requires { exchange_.template settle<wide_type, I>(channel_, codec_, memory_->workspace); })
      exchange_.template settle<wide_type, I>(channel_, codec_, memory_->workspace);
  }

  /// One step, in place: on return `gradient` holds the reduced result, dense, the same on every rank.
  ///
  /// Collective. `gradient` has the layout's size and lies in the backend's memory. Allocates nothing. Work: one pass over n
  /// values to accumulate and select, one to write the result, O(k) else; messages and bytes: see the exchange.
  /// Throws topsum::error: on every rank alike errc::wrong_size, errc::nonfinite, errc::mismatch (steps or plans differ) - the
  /// plan goes on with the next call, finite gradients are kept in the residual, or with `.rollback` nothing happened -; what a
  /// stage throws, here, and its code or errc::stage_failed on the others, which goes on likewise; on this rank
  /// errc::transport, errc::timeout, errc::corrupt_message, after which the plan answers errc::broken_plan.
  report operator()(result_span gradient) { return (*this)(gradient_span{gradient}, gradient); }

  /// The same, not in place: reads `gradient`, writes `result`, both of the layout's size; they are one or do not overlap.
  /// Where T is narrower than `wide_type`, sums are wide and each is rounded once, to the nearest T; what is too large for T is
  /// infinite there (and finite in `sparse`), on every rank alike and without an error.
  /// Under `dense`, a step that fails may have overwritten the result.
  report operator()(gradient_span gradient, result_span result) {
    auto const write = [&](memory_type& memory, auto const& reduced) {
      B& b = channel_.backend();
      if constexpr (is_sparse) {
        b.fill(result, from_wide<T>(wide_type{0}));
        b.assign(reduced, result);
      }
      if (mark(memory)) b.assign(memory.marks.list.view(), result);
      return reduced;
    };
    return run(gradient, result.size(), result, write);
  }

  /// Memory of another kind is refused.
  template <class Other>
    requires(!std::convertible_to<Other, result_span>)
  report operator()(Other&&) {
    static_assert(
        std::convertible_to<Other, result_span>,
        "topsum: this plan's gradients are in its backend's memory, as mutable values of the plan's type: for "
        "host memory write std::span<T>, for a device's write topsum::device_span<T>{pointer, n}");
    return {};
  }

  /// The same without touching n values of a result: entries that an optimizer can apply one by one.
  [[nodiscard]] sparse_result<B, wide_type, I> sparse(gradient_span gradient) {
    static_assert(
        is_sparse,
        "topsum: the result of the dense exchange is dense: call the plan itself, or choose a sparse exchange");
    entries_view<B, wide_type, I> list;
    auto const take = [&](memory_type& memory, auto const& reduced) {
      list = reduced;
      if (mark(memory)) {
        entries_view<B, wide_type, I> const both[] = {reduced, memory.marks.list.view()};
        list = memory.marked.view();
        channel_.backend().merge_sum(std::span<entries_view<B, wide_type, I> const>{both}, list);
      }
      return list;
    };
    report const done = run(gradient, layout_.size(), result_span{}, take);
    return {list.indices.subspan(0, done.result), list.values.subspan(0, done.result), done};
  }

  /// What this plan keeps on this rank - residual, states of selection and exchange, step - as bytes to be loaded later. Local.
  ///
  /// One pass over what is kept: n values under `error_feedback`, 2n under `momentum_correction`. Allocates the bytes.
  /// Throws errc::broken_plan after a transport fault.
  [[nodiscard]] std::vector<std::byte> save() {
    if (broken_) throw error{errc::broken_plan, "save: this plan was left between two steps by an earlier fault"};
    detail::checkpoint_writer to{head()};
    auto nothing = no_state{};
    B& b = channel_.backend();
    to.part(b, to_text(residual_), memory_->residual);
    if constexpr (is_sparse) {
      to.part(b, to_text(selection_), memory_->selection_before);
      to.part(b, to_text(exchange_), memory_->exchange_before);
    } else {
      to.part(b, to_text(selection_), nothing);
      to.part(b, to_text(exchange_), nothing);
    }
    return std::move(to).seal();
  }

  /// Goes on where `save` was called: this rank's residual, states and step are replaced. On as many ranks, with the same stages,
  /// the steps that follow give the same bits as if nothing had happened.
  ///
  /// Collective. `saved` are the bytes of all old ranks, in any order, or at least those which this rank takes: with P ranks now,
  /// rank r takes old ranks r, r + P, r + 2P, ... and sums their residuals in that order, so that no residual is lost. A rank
  /// beyond the old number takes none and may be given none. On another number of ranks the exchange starts afresh, and so does
  /// the selection on ranks that take none (on all, where it learns from results); the others take their first old rank's. Costs 48 bytes to each peer and one pass over
  /// what is kept; allocates.
  /// Throws topsum::error on every rank alike, and leaves the plans as they were: errc::bad_argument (damaged or missing bytes),
  /// errc::mismatch (another layout, type or stage; ranks load different steps). See docs/checkpoints.md.
  void load(std::span<std::span<std::byte const> const> saved, restore what = restore::everything) {
    take_over(saved, what);
  }
  void load(std::span<std::vector<std::byte> const> saved, restore what = restore::everything) {
    take_over(std::vector<std::span<std::byte const>>(saved.begin(), saved.end()), what);
  }
  void load(std::span<std::byte const> saved, restore what = restore::everything) {
    take_over(std::span<std::span<std::byte const> const>{&saved, 1}, what);
  }

  /// Undoes the last completed call, once, before the next: residual, states and step are as they were before it. For training
  /// that skips a step when it sees an overflow in the result. The gradient, where the result took its place, does not come back.
  ///
  /// Local, so every rank must do it; else the next call is errc::mismatch of steps, on every rank. Costs nothing.
  /// Throws errc::bad_argument where the residual store keeps no copy (write `.rollback = true`), and where no completed call is
  /// the last.
  void discard() {
    static_assert(discarding_store<E, B, T>, "topsum: this plan's residual store cannot discard a step");
    if constexpr (discarding_store<E, B, T>) {
      if (!residual_.rolls_back())
        throw error{errc::bad_argument,
                    detail::sentence("discard: ", E::name, " keeps no copy of the step before; write ", E::name,
                                     "{.rollback = true}")};
      if (!discardable_)
        throw error{errc::bad_argument,
                    "discard: there is no completed call to undo; discard once, after a call and before the next"};
      residual_.discard(memory_->residual);
      if constexpr (is_sparse) swap_states();
      --step_;
      discardable_ = false;
    }
  }

  /// Completed calls.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] layout const& shapes() const noexcept { return layout_; }
  /// k: entries that may travel from this rank in one step.
  [[nodiscard]] std::size_t capacity() const noexcept { return shape_.capacity; }
  /// Bytes that the plan allocated in the backend's memory.
  [[nodiscard]] std::size_t memory_bytes() { return channel_.backend().allocated_bytes(); }
  /// What has not been applied so far: n values in the backend's memory, none without a residual.
  [[nodiscard]] auto residual() {
    static_assert(E::keeps, "topsum: this plan keeps no residual; pass topsum::error_feedback{}");
    return typename B::template span<wide_type const>{memory_->residual.current()};
  }
  [[nodiscard]] B& backend() noexcept { return channel_.backend(); }
  /// The stages and their parameters, in one line.
  [[nodiscard]] std::string describe() const {
    return detail::sentence(describe_stages().text(), ", ", to_string(nonfinite_));
  }

 private:
  static_assert(!contributor_reduction<D> || counts_contributors<X>,
                "topsum: contributor_mean asks how many ranks sent each entry, and this exchange cannot tell: write "
                "topsum::gather_all{}, or topsum::mean{}");
  static_assert(
      !requires { requires X::needs_alike; } || selects_alike<S>,
      "topsum: aligned{as_selected{}} asks for a policy that selects alike on all ranks: topsum::shared_random{}, "
      "or one that says `selects_alike`");
  static_assert(X::kind != exchange_kind::aligned || readable_store<E, B, T, I>,
                "topsum: an aligned exchange asks for accumulators at indices that others chose; this plan's residual "
                "store has no "
                "`look_up`, see topsum::readable_store");
  using clock = std::chrono::steady_clock;
  struct no_state {};
  using channel_type = channel<B, detail::transport_for<X, C>>;
  static constexpr bool by_quota = quota_exchange<X> && selects_by_quota<S, B, T, I>;
  using memory_type =
      typename std::conditional_t<is_sparse, std::type_identity<detail::sparse_memory<B, T, I, S, E, K, X>>,
                                  std::type_identity<detail::dense_memory<B, T, I, E, X, channel_type>>>::type;

  [[nodiscard]] description describe_stages() const {
    description d;
    topsum::describe(d, selection_);
    topsum::describe(d, residual_);
    topsum::describe(d, codec_);
    topsum::describe(d, exchange_);
    topsum::describe(d, reduction_);
    d.mix(static_cast<std::uint64_t>(nonfinite_));
    return d;
  }

  void prepare() {
    layout_.validate();
    channel_.backend().validate();
    selection_.validate();
    residual_.validate();
    codec_.validate();
    exchange_.validate();
    reduction_.validate();
    std::size_t const n = layout_.size();
    if (n > std::numeric_limits<I>::max()) {
      throw error{
          errc::bad_argument,
          detail::sentence("n = ", n,
                           " does not fit 32-bit indices; pass topsum::index<std::uint64_t>{} to plan_allreduce")};
    }
    pieces_ = selection_.pieces(layout_);
    if (is_sparse && coverage_) rows_ = detail::coverage_memory<B>{channel_.backend(), layout_, coverage_->along};
    check_pieces();
    pieces_.for_each_list([this](std::span<piece const> list) { scoped_ = scoped_ || total_groups(list) > 1; });
    shape_ = {n, pieces_.capacity, channel_.rank(), channel_.ranks(), false, contributor_reduction<D>};
    if constexpr (by_quota) {
      shape_.by_quota = true;
      quotas_ = exchange_.shares(n, shape_.capacity, static_cast<std::size_t>(shape_.ranks));
      pieces_.room = std::max(pieces_.room, quotas_.total());
      channel_.backend().template reserve_quotas<wide_type, I>(quotas_);
    }
    if constexpr (is_sparse) {
      memory_.emplace(channel_.backend(), pieces_, shape_, residual_, codec_, exchange_);
      if (nonfinite_ == on_nonfinite::propagate) {
        memory_->marked = entries<B, wide_type, I>{
            channel_.backend(), memory_->workspace.result_capacity() + static_cast<std::size_t>(shape_.ranks)};
      }
    } else {
      memory_.emplace(channel_.backend(), shape_, residual_);
    }
  }

  void swap_states() {
    std::swap(memory_->selection_before, memory_->selection_after);
    std::swap(memory_->exchange_before, memory_->exchange_after);
  }

  [[nodiscard]] detail::checkpoint_head head() const {
    return {value_traits<T>::code,
            static_cast<std::uint64_t>(shape_.ranks),
            static_cast<std::uint64_t>(shape_.rank),
            step_,
            shape_.n,
            layout_.hash()};
  }

  /// `load`: everything is read and checked before ranks agree; what can still fail then is the backend.
  void take_over(std::span<std::span<std::byte const> const> saved, restore what) {
    wire_header mine{wire_header::kind::load, errc::none, fingerprint_, 0, 0, static_cast<std::uint64_t>(what), 0};
    bool const was_broken = std::exchange(broken_, true);
    std::string problem;
    detail::loaded_states<memory_type> states;
    std::vector<detail::saved_bytes> residuals;
    try {
      if (was_broken)
        throw error{errc::broken_plan,
                    "load: this plan was left between two steps by an earlier fault; make a new one"};
      detail::checkpoint_share const share = detail::share_of_saved(saved, head());
      for (detail::checkpoint const& one : share.taken) {
        detail::expect_same_stage(one.residual.stage, to_text(residual_), E::name, what);
        if (what == restore::everything) {
          if (is_sparse) detail::expect_same_stage(one.selection.stage, to_text(selection_), S::name, what);
          detail::expect_same_stage(one.exchange.stage, to_text(exchange_), X::name, what);
        }
        residuals.push_back(one.residual.fields);
      }
      detail::load_fields(channel_.backend(), memory_->residual, residuals, detail::loading::check, true);
      if constexpr (is_sparse) {
        states.make(channel_.backend(), pieces_, shape_, exchange_);
        if (what == restore::everything) mine.b = load_states(share, states);
      }
      if (share.any) {
        mine.step = share.any->step;
        mine.count = share.any->ranks;
      }
    } catch (error const& e) {
      mine.code = e.code();
      problem = std::string{e.what()}.substr(std::string_view{"topsum: "}.size());
    } catch (std::bad_alloc const&) {
      mine.code = errc::out_of_memory;
      problem = "load: could not allocate memory";
    }
    try {
      step_ = channel_.agree_on_load(mine, problem).step;
    } catch (error const&) {
      if (channel_.settled()) broken_ = was_broken;
      throw;
    }
    discardable_ = false;
    detail::load_fields(channel_.backend(), memory_->residual, residuals, detail::loading::apply, true);
    if constexpr (is_sparse) states.move_into(*memory_);
    broken_ = false;
  }

  /// States of selection and exchange from what this rank takes. Returns a hash of the exchange's, 0 where it starts afresh.
  std::uint64_t load_states(detail::checkpoint_share const& share, detail::loaded_states<memory_type>& states) {
    if (share.taken.empty()) return 0;
    detail::checkpoint const& own = share.taken.front();
    auto const load = [&](auto& state, detail::saved_bytes from) {
      detail::load_fields(channel_.backend(), state, std::span{&from, 1}, detail::loading::apply, false);
    };
    bool const as_many = own.head.ranks == static_cast<std::uint64_t>(shape_.ranks);
    if (as_many || !observing_policy<S, B, T, I>) load(*states.selection, own.selection.fields);
    if (!as_many) return 0;
    load(*states.exchange, own.exchange.fields);
    if (!detail::exchange_state_fits(*states.exchange, shape_))
      throw error{errc::bad_argument, detail::sentence("load: the saved state of ", X::name, " cannot be")};
    if constexpr (requires { std::remove_cvref_t<decltype(*states.exchange)>::of_this_rank; }) return 0;
    return detail::checksum(own.exchange.fields);
  }

  void check_pieces() const {
    pieces_.for_each_list([this](std::span<piece const> list) {
      std::size_t end = 0;
      for (piece const& p : list) {
        if (p.begin < end || p.size > layout_.size() || p.begin > layout_.size() - p.size || !is_well_formed(p)) {
          throw error{errc::bad_argument,
                      detail::sentence(S::name,
                                       ": its pieces overlap, leave the layout, are not whole blocks, or may send more "
                                       "entries than they have values")};
        }
        end = p.begin + p.size;
      }
    });
    if (pieces_.capacity > layout_.size())
      throw error{errc::bad_argument, detail::sentence(S::name, ": its capacity exceeds the number of values")};
  }

  /// One step. `finish(memory, reduced)` takes the result and returns its entries; a dense exchange works in `dense`.
  template <class Finish>
  report run(gradient_span gradient, std::size_t result_size, result_span dense, Finish const& finish) {
    channel_.begin(fingerprint_, step_, layout_);
    discardable_ = false;
    bool const was_broken = std::exchange(broken_, true);
    try {
      if (was_broken) channel_.fail(errc::broken_plan);
      if (gradient.size() != layout_.size()) channel_.fail(errc::wrong_size, gradient.size());
      if (result_size != layout_.size()) channel_.fail(errc::wrong_size, result_size);
      report const done = attempt(gradient, dense, finish);
      residual_.commit(memory_->residual);
      ++step_;
      broken_ = false;
      discardable_ = true;
      return done;
    } catch (error const& e) {
      if (channel_.settled()) {
        broken_ = was_broken;
      } else if (was_broken) {  // and the others cannot even be told
        throw error{
            errc::broken_plan,
            detail::sentence(
                "this plan was left between two steps by an earlier fault; make a new plan on every rank, over a "
                "new communicator if the old one failed (",
                e.what(), ")"),
            channel_.rank()};
      }
      throw;
    } catch (...) {
      broken_ = was_broken || !channel_.settled();
      throw;
    }
  }

  /// Runs what this rank does alone: should it throw, all ranks hear of it.
  template <class F>
  void alone(F const& work) {
    auto const tell = [this](errc code) {
      try {
        channel_.fail(code);
      } catch (error const&) {  // what is thrown here says more
      }
    };
    try {
      work();
    } catch (error const& e) {
      tell(e.code());
      throw;
    } catch (std::bad_alloc const&) {
      tell(errc::out_of_memory);
      throw;
    } catch (...) {
      tell(errc::stage_failed);
      throw;
    }
  }

  template <class Finish>
  report attempt(gradient_span gradient, result_span dense, Finish const& finish) {
    B& b = channel_.backend();
    auto& memory = *memory_;
    report r;
    r.step = step_;
    r.n = shape_.n;
    r.exchange = X::name;
    r.scope_kept = keeps_scope<X> || !scoped_ || shape_.ranks == 1;
    if constexpr (requires { memory.workspace.chosen; }) {
      r.exchange = memory.workspace.chosen;
      r.predicted_seconds = memory.workspace.seconds;
    }
    auto const t0 = clock::now();

    auto const work = working_values(dense);
    nonfinite_record bad;
    alone([&] {
      b.fill(memory.fault.view(), nonfinite_record{});
      auto const from = residual_.template accumulate<B, T>(b, gradient, memory.residual, memory.fault.view());
      if constexpr (is_sparse) {
        if constexpr (by_quota) {
          selection_.select_quotas(b, from, quotas_, memory.selected.view());
          r.selected = quotas_.total();
        } else {
          selection_.select(b, from, pieces_, step_, std::as_const(memory.selection_before), memory.selection_after,
                            memory.selected.view());
          r.selected = S::fixed_count ? shape_.capacity : b.read(memory.selected.view().count);
        }
        if (coverage_) r.selected_coverage = rows_.share(b, memory.selected.view());
      } else {
        b.accumulate(from, work);
        r.selected = shape_.n;
      }
      bad = b.read(memory.fault.view());
    });
    r.nonfinite = static_cast<std::size_t>(bad.count);
    if (bad.count != 0) {
      if (nonfinite_ == on_nonfinite::error) channel_.fail(errc::nonfinite, bad.first, bad.count);
      channel_.note(bad.first, bad.count);
    }
    auto const t1 = clock::now();

    if constexpr (is_sparse) {
      auto const outcome = exchange_entries(gradient, r.selected);
      r.sent = outcome.sent;
      b.wait();
      auto const t2 = clock::now();
      r.exchange_seconds = seconds(t1, t2);
      residual_.keep(b, memory.residual, outcome.applied);
      if (outcome.returned) residual_.take_back(b, memory.residual, *outcome.returned);
      reduce(outcome);
      r.result = b.read(finish(memory, outcome.result).count);
      if (coverage_) r.coverage = rows_.share(b, outcome.result);
      if constexpr (observing_policy<S, B, T, I>)
        selection_.observe(b, outcome.result, pieces_, step_, memory.selection_after);
      swap_states();
      r.apply_seconds = seconds(t2, clock::now());
    } else {
      channel_.open();
      // From here on only a broken plan can follow; and the sums will take the accumulators' place.
      residual_.template keep_dense<B, T>(b, memory.residual, work);
      exchange_.run(channel_, work, memory.workspace);
      r.sent = r.result = shape_.n;
      b.wait();
      auto const t2 = clock::now();
      r.exchange_seconds = seconds(t1, t2);
      auto const divisor = static_cast<wide_type>(reduction_.divisor(shape_.ranks));
      if (!std::is_same_v<T, wide_type> || divisor != 1) {  // else the sums are where they belong
        b.for_each(
            shape_.n, [divisor](std::size_t, T& to, wide_type const& sum) { to = from_wide<T>(sum / divisor); }, dense,
            work);
      }
      finish(memory, 0);
      b.wait();
      r.apply_seconds = seconds(t2, clock::now());
    }
    r.select_seconds = seconds(t0, t1);
    r.bytes = channel_.bytes_sent();
    r.messages = channel_.messages_sent();
    r.control_bytes = channel_.control_bytes_sent();
    r.dense_bytes = 2 * (static_cast<std::uint64_t>(shape_.n) * sizeof(T) / static_cast<unsigned>(shape_.ranks)) *
                    static_cast<unsigned>(shape_.ranks - 1);
    return r;
  }

  /// The exchange's part of a step; an aligned one asks for accumulators.
  auto exchange_entries(gradient_span gradient, std::size_t selected) {
    auto& memory = *memory_;
    auto const& before = std::as_const(memory.exchange_before);
    if constexpr (X::kind == exchange_kind::aligned) {
      auto const look_up = [&](entries_view<B, wide_type, I> list) {
        residual_.look_up(channel_.backend(), memory.residual, gradient, list);
      };
      return exchange_.run(channel_, codec_, memory.selected.view(), selected, before, memory.exchange_after,
                           memory.workspace, look_up);
    } else {
      return exchange_.run(channel_, codec_, memory.selected.view(), selected, before, memory.exchange_after,
                           memory.workspace);
    }
  }

  /// The reduction of the sums, in place.
  void reduce(exchange_outcome<B, wide_type, I> const& outcome) {
    B& b = channel_.backend();
    if constexpr (contributor_reduction<D>) {
      std::size_t const count = b.read(outcome.result.count);
      b.for_each(
          count,
          [by = reduction_](std::size_t, wide_type& sum, wide_type const& contributors) {
            sum /= static_cast<wide_type>(by.divisor(static_cast<int>(contributors)));
          },
          outcome.result.values.subspan(0, count), outcome.contributors->values.subspan(0, count));
    } else if (double const d = reduction_.divisor(shape_.ranks); d != 1) {
      b.divide(outcome.result, static_cast<wide_type>(d));
    }
  }

  /// Where a dense exchange sums: the result itself, or wide values beside it.
  auto working_values(result_span dense) {
    if constexpr (is_sparse) {
      return 0;
    } else if constexpr (std::is_same_v<T, wide_type>) {
      return dense;
    } else {
      return memory_->wide.view();
    }
  }

  /// Under on_nonfinite::propagate: lists NaN at every rank's first non-finite position; false if there is none.
  bool mark(memory_type& memory) {
    if (nonfinite_ != on_nonfinite::propagate) return false;
    auto& where = memory.marks.positions;
    std::size_t count = 0;
    for (wire_header const& h : channel_.headers()) {
      if (h.b != 0) where[count++] = static_cast<I>(h.a);
    }
    if (count == 0) return false;
    std::sort(where.begin(), where.begin() + static_cast<std::ptrdiff_t>(count));
    count = static_cast<std::size_t>(std::unique(where.begin(), where.begin() + static_cast<std::ptrdiff_t>(count)) -
                                     where.begin());
    auto const list = memory.marks.list.view();
    B& b = channel_.backend();
    b.write(std::span<I const>{where}.first(count), list.indices.subspan(0, count));
    b.fill(list.values, std::numeric_limits<wide_type>::quiet_NaN());
    b.fill(list.count, count);
    return true;
  }

  static double seconds(clock::time_point from, clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  layout layout_;
  S selection_;
  E residual_;
  K codec_;
  X exchange_;
  D reduction_;
  on_nonfinite nonfinite_;
  std::optional<row_coverage> coverage_;
  channel_type channel_;
  partition pieces_;
  quotas quotas_;
  detail::coverage_memory<B> rows_;
  exchange_shape shape_;
  std::optional<memory_type> memory_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t step_ = 0;
  bool scoped_ = false;  // whether the policy promises something to more than one group
  bool broken_ = false;
  bool discardable_ = false;  // whether the last thing that happened was a completed call
};

}  // namespace topsum

#endif
