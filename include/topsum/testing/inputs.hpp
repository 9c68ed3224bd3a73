// SPDX-License-Identifier: BSL-1.0
/// \file
/// Gradients that find faults, and a place to collect what failed.
#ifndef TOPSUM_TESTING_INPUTS_HPP
#define TOPSUM_TESTING_INPUTS_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <topsum/core/random.hpp>
#include <topsum/core/value.hpp>

namespace topsum::laws {

/// What failed, a sentence each; empty when every law held.
using failures = std::vector<std::string>;

/// Collects failures under a heading that says which input they belong to.
class verdict {
 public:
  /// Failures from here on are said to be about `what`.
  void about(std::string what) { about_ = std::move(what); }
  /// Records `sentence` unless `held`. Returns `held`.
  bool expect(bool held, std::string_view sentence) {
    if (!held && list_.size() < most) list_.push_back(about_ + ": " + std::string{sentence});
    return held;
  }
  [[nodiscard]] failures const& list() const& noexcept { return list_; }
  [[nodiscard]] failures list() && noexcept { return std::move(list_); }

 private:
  static constexpr std::size_t most = 50;  // a broken model would drown the reader
  std::string about_;
  failures list_;
};

using topsum::random_bits;

/// Shapes of gradient values.
enum class input {
  laplace,         ///< heavy-tailed reals, as gradients are
  small_integers,  ///< -8 ... 8: sums are exact in any order, ties abound
  all_zero,
  all_equal,
  negative_only,
  increasing,   ///< magnitude grows with the position
  one_spike,    ///< equal values and a single large one
  mostly_zero,  ///< one in 50 nonzero
};
/// All of them, to loop over.
inline constexpr input every_input[] = {input::laplace,   input::small_integers, input::all_zero,
                                        input::all_equal, input::negative_only,  input::increasing,
                                        input::one_spike, input::mostly_zero};

/// The shape in words.
[[nodiscard]] constexpr std::string_view to_string(input kind) noexcept {
  constexpr std::string_view names[] = {"laplace",       "small integers", "all zero",  "all equal",
                                        "negative only", "increasing",     "one spike", "mostly zero"};
  return names[static_cast<std::size_t>(kind)];
}

/// `n` values of one shape, fixed by `seed`. All but `laplace` and `negative_only` are integers, rounded to `T`.
template <class T>
[[nodiscard]] std::vector<T> make_input(input kind, std::size_t n, std::uint64_t seed) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t const bits = random_bits(seed, i);
    double const unit = (static_cast<double>(bits >> 11) + 0.5) / 9007199254740992.0;
    double const tail = -std::log(unit) * ((bits & 1) != 0 ? 1 : -1);
    double v = 0;
    switch (kind) {
      case input::laplace: v = tail; break;
      case input::small_integers: v = static_cast<double>(bits % 17) - 8; break;
      case input::all_zero: break;
      case input::all_equal: v = 3; break;
      case input::negative_only: v = -std::abs(tail) - 0.01; break;
      case input::increasing: v = static_cast<double>(i + 1) * ((i & 1) != 0 ? -1 : 1); break;
      case input::one_spike: v = i == n / 2 ? -100 : 1; break;
      case input::mostly_zero: v = bits % 50 == 0 ? static_cast<double>(bits % 9) - 4 : 0; break;
    }
    x[i] = from_wide<T>(static_cast<wide_t<T>>(v));
  }
  return x;
}

/// The first `count` values of a backend's memory, on the host.
template <class V, class B, class Span>
[[nodiscard]] std::vector<V> fetch(B& backend, Span from, std::size_t count) {
  std::vector<V> here(count);
  backend.read(typename B::template span<V const>{from.subspan(0, count)}, std::span<V>{here});
  return here;
}

/// Host values in a backend's memory.
template <class V, class B>
[[nodiscard]] auto place(B& backend, std::vector<V> const& values) {
  auto there = backend.template allocate<V>(values.size());
  backend.write(std::span<V const>{values}, there.view());
  return there;
}

}  // namespace topsum::laws

#endif
