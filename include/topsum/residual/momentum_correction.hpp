// SPDX-License-Identifier: BSL-1.0
/// \file
/// Residual: local momentum is accumulated, not gradients, so that what waits keeps the direction it would have had.
#ifndef TOPSUM_RESIDUAL_MOMENTUM_CORRECTION_HPP
#define TOPSUM_RESIDUAL_MOMENTUM_CORRECTION_HPP

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <topsum/core/entries.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/kept_values.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// g' = scale * g, m = momentum * m + g', acc = v + ahead * m + behind * g': states are v, which becomes acc, and m.
template <class T>
struct corrected_momentum_sum {
  using R = wide_t<T>;
  static constexpr std::size_t states = 2;
  static constexpr std::size_t accumulator = 0;
  R momentum = 0;
  R ahead = 1;
  R behind = 0;
  R scale = 1;
  constexpr R operator()(T gradient, std::array<R, 2>& state) const noexcept {
    R const scaled = multiply_then_add(scale, to_wide(gradient), R{0});
    state[1] = multiply_then_add(momentum, state[1], scaled);
    state[0] += multiply_then_add(ahead, state[1], multiply_then_add(behind, scaled, R{0}));
    return state[0];
  }
};

/// Residual: m = momentum * m + g, v = v + m; entries are selected from v, and where they were applied v and m begin anew.
///
/// The momentum of the optimizer moves in here: give the optimizer none. With ordinary momentum applied after the exchange an entry
/// that waits for many steps arrives as one late jolt; here it arrives as the sum of the momenta it would have had.
/// `.masking` (momentum factor masking) clears m where v was applied, so that old momentum does not push on in a direction that has
/// been taken. Under `dense` nothing is late, so only v is cleared: that is momentum SGD. From v what receivers decoded is
/// subtracted, so that a lossy codec loses nothing.
/// Conservation is that of v: v + applied = v before + this step's m (nesterov: + momentum * m + g); clipping comes before it.
///
/// Source: DGC (Lin et al., ICLR'18, sections 3.1 to 3.3). Keeps 2n values (4n with `.rollback`); one pass, which moves 5/3 of
/// error feedback's bytes. `.clip` needs the gradient's norm before that pass: it peeks, by `moments`, which takes about twice as
/// long as the pass itself on a CPU, and waits for the backend once. Deterministic. Where an element overflows, v and m both keep
/// their values.
/// Prefer `error_feedback` where the optimizer has no momentum, or must see plain mean gradients (Adam, say).
struct momentum_correction {
  using stage_tag = residual_tag;
  static constexpr std::string_view name = "momentum_correction";
  static constexpr bool keeps = true;

  double momentum = 0.9;         ///< factor on the old momentum, in [0, 1)
  bool nesterov = false;         ///< v = v + momentum * m + g instead
  bool masking = true;           ///< whether m is cleared where v was applied
  std::optional<double> clip{};  ///< largest 2-norm of this rank's gradient, above 0; DGC: a global one / sqrt(P)
  bool rollback = false;         ///< whether a failed step leaves v and m as they were, and `plan::discard` works

  /// One rank's v, `current()`, and m, `momentum()`: 2n values, twice with rollback.
  template <class B, class T>
  struct state : detail::kept_values<B, wide_t<T>, 2> {
    state(B& backend, std::size_t n, momentum_correction const& stage)
        : detail::kept_values<B, wide_t<T>, 2>{backend, n, stage.rollback},
          sums{backend.template allocate<moments>(1)},
          least{backend.template allocate<wide_t<T>>(1)} {
      backend.fill(least.view(), wide_t<T>{0});
    }
    /// m after the last completed step.
    [[nodiscard]] auto momentum() { return this->current(1); }
    template <class V>
    void visit(V& visitor) {
      visitor("residual", this->kept(0));
      visitor("momentum", this->kept(1));
    }
    typename B::template buffer<moments> sums;
    typename B::template buffer<wide_t<T>> least;
  };

  void validate() const {
    if (!(momentum >= 0.0 && momentum < 1.0))
      throw error{errc::bad_argument,
                  detail::sentence("momentum_correction: .momentum = ", momentum, " is outside [0, 1)")};
    if (clip.has_value() && !(*clip > 0.0 && std::isfinite(*clip)))
      throw error{errc::bad_argument,
                  detail::sentence("momentum_correction: .clip = ", *clip, "; write a norm above 0, or leave it out")};
  }

  template <class B, class T>
  [[nodiscard]] source<B, T, corrected_momentum_sum<T>> accumulate(
      B& backend, typename B::template span<T const> gradient, state<B, T>& memory,
      typename B::template span<nonfinite_record> fault) const {
    using R = wide_t<T>;
    auto const factor = static_cast<R>(momentum);
    corrected_momentum_sum<T> const formula{factor, nesterov ? factor : R{1}, nesterov ? R{1} : R{0},
                                            static_cast<R>(clip_factor<B, T>(backend, gradient, memory, fault))};
    return {gradient, {memory.current(0), memory.current(1)}, {memory.next(0), memory.next(1)}, formula, fault};
  }
  /// This step's accumulators at the list's indices.
  template <class B, class T, class R, class I>
  void look_up(B& backend, state<B, T>& memory, typename B::template span<T const>, entries_view<B, R, I> list) const {
    backend.look_up(typename B::template span<R const>{memory.next(0)}, list);
  }
  /// The entries of `applied` left with these values.
  template <class B, class T, class R, class I>
  void keep(B& backend, state<B, T>& memory, entries_view<B, R, I> applied) const {
    backend.subtract(applied, memory.next(0));
    if (masking) backend.clear(applied, memory.next(1));
  }
  /// Sums that came back to this rank wait here for a later step.
  template <class B, class T, class R, class I>
  void take_back(B& backend, state<B, T>& memory, entries_view<B, R, I> returned) const {
    backend.add(returned, memory.next(0));
  }
  /// All n values of `applied` left.
  template <class B, class T>
  void keep_dense(B& backend, state<B, T>& memory, typename B::template span<wide_t<T>> applied) const {
    using R = wide_t<T>;
    backend.for_each(
        applied.size(), [](std::size_t, R& residual, R const& value) { residual -= value; }, memory.next(0), applied);
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
    out("momentum", momentum);
    out("nesterov", nesterov);
    out("masking", masking);
    out("clip", clip);
    out("rollback", rollback);
    out.close();
  }

 private:
  /// What the gradient is multiplied by so that its norm, over its finite elements, is at most `clip`.
  template <class B, class T>
  double clip_factor(B& backend, typename B::template span<T const> gradient, state<B, T>& memory,
                     typename B::template span<nonfinite_record> fault) const {
    if (!clip.has_value()) return 1;
    piece const whole{0, gradient.size(), 0, 0};
    backend.moments(source<B, T, plain_gradient<T>>{gradient, {}, {}, {}, fault}, std::span{&whole, 1},
                    memory.least.view(), memory.sums.view());
    moments const sums = backend.read(memory.sums.view());
    double const norm = std::isfinite(sums.sum_squares) ? std::sqrt(sums.sum_squares)
                                                        : sums.largest * std::sqrt(static_cast<double>(sums.count));
    return norm > *clip ? *clip / norm : 1;
  }
};

}  // namespace topsum

#endif
