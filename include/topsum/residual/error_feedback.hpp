// SPDX-License-Identifier: BSL-1.0
/// \file
/// Residual: what did not travel is added to the next gradient.
#ifndef TOPSUM_RESIDUAL_ERROR_FEEDBACK_HPP
#define TOPSUM_RESIDUAL_ERROR_FEEDBACK_HPP

#include <cstddef>
#include <string>
#include <string_view>

#include <topsum/core/entries.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/kept_values.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// Residual: accumulator = decay * residual + gradient; afterwards the residual is the accumulator less what was applied.
///
/// Kept in `wide_t<T>`, one value a parameter, in place: a step that fails leaves its finite gradients there, so that nothing
/// is lost. With `.rollback` a second buffer takes the new residual and a failed step leaves no trace (twice the memory).
/// Sources: Seide et al., Interspeech'14; Karimireddy et al., ICML'19. Which entries count as applied, the exchange says.
struct error_feedback {
  using stage_tag = residual_tag;
  static constexpr std::string_view name = "error_feedback";
  static constexpr bool keeps = true;

  double decay = 1;       ///< factor on the old residual, in [0, 1]
  bool rollback = false;  ///< whether a failed step leaves the residual as it was, and `plan::discard` works

  /// The residual of one rank, `current()`: `n` values, twice with rollback.
  template <class B, class T>
  struct state : detail::kept_values<B, wide_t<T>, 1> {
    state(B& backend, std::size_t n, error_feedback const& stage)
        : detail::kept_values<B, wide_t<T>, 1>{backend, n, stage.rollback} {}
    template <class V>
    void visit(V& visitor) {
      visitor("residual", this->kept(0));
    }
  };

  void validate() const {
    if (!(decay >= 0.0 && decay <= 1.0))
      throw error{errc::bad_argument, detail::sentence("error_feedback: .decay = ", decay, " is outside [0, 1]")};
  }

  template <class B, class T>
  [[nodiscard]] source<B, T, decayed_residual_sum<T>> accumulate(
      B&, typename B::template span<T const> gradient, state<B, T>& memory,
      typename B::template span<nonfinite_record> fault) const {
    return {gradient, {memory.current()}, {memory.next()}, {static_cast<wide_t<T>>(decay)}, fault};
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
        applied.size(), [](std::size_t, R& residual, R const& value) { residual -= value; }, memory.next(), applied);
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
    out("decay", decay);
    out("rollback", rollback);
    out.close();
  }
};

}  // namespace topsum

#endif
