// SPDX-License-Identifier: BSL-1.0
/// \file
/// Residual: it is the momentum, from which what was applied is taken away.
#ifndef TOPSUM_RESIDUAL_DECOUPLED_MOMENTUM_HPP
#define TOPSUM_RESIDUAL_DECOUPLED_MOMENTUM_HPP

#include <cstddef>
#include <string_view>

#include <topsum/core/entries.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/kept_values.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// Residual: m = beta * m + g; entries are selected from m, and what was applied is subtracted from it.
///
/// Each rank has a momentum of its own: its fast part, what is selected, is shared, the slow rest goes on decaying locally. Give
/// the optimizer no momentum (DeMo follows with the sign of the result). What decays is never applied: that is intended.
/// Source: DeMo (Peng et al., arXiv 2411.19870, Algorithm 1; `chunked` selections and a DCT belong to it). The sums are those of
/// `error_feedback{.decay = beta}`; the name says what they are meant as. Keeps n values (2n with `.rollback`), one pass,
/// deterministic. Under `dense` everything is applied, so no momentum is left. Prefer `momentum_correction` where nothing may decay unsent.
struct decoupled_momentum {
  using stage_tag = residual_tag;
  static constexpr std::string_view name = "decoupled_momentum";
  static constexpr bool keeps = true;

  double beta = 0.999;    ///< factor on the old momentum, in [0, 1]
  bool rollback = false;  ///< whether a failed step leaves the momentum as it was, and `plan::discard` works

  /// One rank's momentum, `current()`: n values, twice with rollback.
  template <class B, class T>
  struct state : detail::kept_values<B, wide_t<T>, 1> {
    state(B& backend, std::size_t n, decoupled_momentum const& stage)
        : detail::kept_values<B, wide_t<T>, 1>{backend, n, stage.rollback} {}
    template <class V>
    void visit(V& visitor) {
      visitor("momentum", this->kept(0));
    }
  };

  void validate() const {
    if (!(beta >= 0.0 && beta <= 1.0))
      throw error{errc::bad_argument, detail::sentence("decoupled_momentum: .beta = ", beta, " is outside [0, 1]")};
  }

  template <class B, class T>
  [[nodiscard]] source<B, T, decayed_residual_sum<T>> accumulate(
      B&, typename B::template span<T const> gradient, state<B, T>& memory,
      typename B::template span<nonfinite_record> fault) const {
    return {gradient, {memory.current()}, {memory.next()}, {static_cast<wide_t<T>>(beta)}, fault};
  }
  /// This step's accumulators at the list's indices.
  template <class B, class T, class R, class I>
  void look_up(B& backend, state<B, T>& memory, typename B::template span<T const>, entries_view<B, R, I> list) const {
    backend.look_up(typename B::template span<R const>{memory.next()}, list);
  }
  /// The entries of `applied` left with these values.
  template <class B, class T, class R, class I>
  void keep(B& backend, state<B, T>& memory, entries_view<B, R, I> applied) const {
    backend.subtract(applied, memory.next());
  }
  /// Sums that came back to this rank wait here for a later step.
  template <class B, class T, class R, class I>
  void take_back(B& backend, state<B, T>& memory, entries_view<B, R, I> returned) const {
    backend.add(returned, memory.next());
  }
  /// All n values of `applied` left.
  template <class B, class T>
  void keep_dense(B& backend, state<B, T>& memory, typename B::template span<wide_t<T>> applied) const {
    using R = wide_t<T>;
    backend.for_each(
        applied.size(), [](std::size_t, R& momentum, R const& value) { momentum -= value; }, memory.next(), applied);
  }
  template <class B, class T>
  void commit(state<B, T>& memory) const noexcept {
    memory.commit();
  }
  /// Whether `discard` can undo the last completed step.
  [[nodiscard]] bool rolls_back() const noexcept { return rollback; }
  template <class B, class T>
  void discard(state<B, T>& memory) const noexcept {
    memory.discard();
  }

  void describe(description& out) const {
    out.open(name);
    out("beta", beta);
    out("rollback", rollback);
    out.close();
  }
};

}  // namespace topsum

#endif
