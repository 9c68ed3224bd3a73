// SPDX-License-Identifier: BSL-1.0
/// \file
/// What makes a type a keyword of `plan_allreduce`: the tag of the slot it fills, and its description.
#ifndef TOPSUM_CORE_STAGE_HPP
#define TOPSUM_CORE_STAGE_HPP

#include <bit>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace topsum {

// The slots of a plan. A stage opts in with `using stage_tag = ...;`.
struct selection_tag {};
struct rule_tag {};  ///< a rule given alone means `global{rule}`
struct residual_tag {};
struct codec_tag {};
struct index_codec_tag {};  ///< a part of `coded`
struct value_codec_tag {};  ///< likewise
struct exchange_tag {};
struct agreement_tag {};  ///< a part of `aligned`
struct reduction_tag {};
struct backend_tag {};
struct index_tag {};
struct nonfinite_tag {};
struct coverage_tag {};

namespace detail {
template <class S>
struct stage_tag_of {
  using type = void;
};
template <class S>
  requires requires { typename S::stage_tag; }
struct stage_tag_of<S> {
  using type = typename S::stage_tag;
};
}  // namespace detail

/// The slot that `S` fills, or void.
template <class S>
using stage_tag_t = typename detail::stage_tag_of<S>::type;

/// Whether a policy, or the rule of a scope, selects the same indices on every rank, whatever their gradients are: it says so by
/// `static constexpr bool selects_alike = true`.
template <class S>
inline constexpr bool selects_alike = [] {
  if constexpr (requires { S::selects_alike; }) {
    return static_cast<bool>(S::selects_alike);
  } else if constexpr (requires(S const& s) { s.rule; }) {
    return selects_alike<std::remove_cvref_t<decltype(std::declval<S const&>().rule)>>;
  } else {
    return false;
  }
}();

/// Keyword: indices of type `I` on the wire and in memory, e.g. `topsum::index<std::uint64_t>{}` when n needs it.
template <class I>
struct index {
  using stage_tag = index_tag;
  using type = I;
};

/// Keyword: what a step does about NaN, infinity, or a sum with the residual that overflowed.
/// The residual is never poisoned: where the sum is not finite, it keeps its old value.
enum class on_nonfinite : unsigned char {
  error,     ///< every rank throws `errc::nonfinite`, naming rank, tensor and position (the default)
  drop,      ///< such entries count as zero; the report says how many
  propagate  ///< dropped too, and the result holds NaN at each rank's first such position, for loss scalers to see
};

/// The policy in words.
[[nodiscard]] constexpr std::string_view to_string(on_nonfinite how) noexcept {
  switch (how) {
    case on_nonfinite::error: return "on_nonfinite::error";
    case on_nonfinite::drop: return "on_nonfinite::drop";
    case on_nonfinite::propagate: return "on_nonfinite::propagate";
  }
  return "unknown policy";
}

template <>
struct detail::stage_tag_of<on_nonfinite> {
  using type = nonfinite_tag;
};

class description;

/// Describes any stage: by its own `describe`, else by its `name`, and its `rule` where it has one.
template <class S>
void describe(description& out, S const& stage);

/// Collects a stage's name and parameters: as text for people, as a hash by which ranks find out that they disagree.
class description {
 public:
  /// Opens the stage `name`; parameters follow. Stages one behind the other are set apart by commas.
  void open(std::string_view name) {
    mix(name);
    if (depth_++ == 0 && !text_.empty()) text_.append(", ");
    text_.append(name).append("{");
    first_ = true;
  }
  void close() {
    mix("}");
    text_.append("}");
    --depth_;
    first_ = false;
  }
  /// One parameter. Numbers, optional numbers, and stages inside stages.
  template <class V>
  void operator()(std::string_view name, V const& value) {
    if (!first_) text_.append(", ");
    first_ = false;
    text_.append(".").append(name).append(" = ");
    mix(name);
    put(value);
  }

  [[nodiscard]] std::string const& text() const noexcept { return text_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  /// Mixes raw data into the hash without text (a layout's extents, say).
  void mix(std::string_view bytes) noexcept {
    for (char c : bytes) step(static_cast<unsigned char>(c));
    step(0xffU);
  }
  void mix(std::uint64_t number) noexcept {
    for (int i = 0; i < 8; ++i) step(static_cast<unsigned char>(number >> (8 * i)));
  }

 private:
  void step(unsigned byte) noexcept { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }  // FNV-1a

  template <class V>
  void put(V const& value) {
    if constexpr (std::same_as<V, bool>) {
      mix(std::uint64_t{value});
      text_.append(value ? "true" : "false");
    } else if constexpr (std::is_enum_v<V>) {
      put(static_cast<std::uint64_t>(value));
    } else if constexpr (std::integral<V>) {
      mix(static_cast<std::uint64_t>(value));
      text_.append(std::to_string(value));
    } else if constexpr (std::floating_point<V>) {
      mix(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
      char digits[32];
      auto const end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(value)).ptr;
      text_.append(digits, end);
    } else if constexpr (requires { value.has_value(); }) {
      mix(std::uint64_t{value.has_value()});
      if (value.has_value()) {
        put(*value);
      } else {
        text_.append("default");
      }
    } else {
      topsum::describe(*this, value);
    }
  }

  std::string text_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  int depth_ = 0;
  bool first_ = true;
};

template <class S>
void describe(description& out, S const& stage) {
  if constexpr (requires { stage.describe(out); }) {
    stage.describe(out);
  } else {
    out.open(S::name);
    if constexpr (requires { out("rule", stage.rule); }) out("rule", stage.rule);
    out.close();
  }
}

/// A stage as text, e.g. `top_k{.density = 0.01, .k = default, .at_most = default}`.
template <class S>
[[nodiscard]] std::string to_text(S const& stage) {
  description out;
  describe(out, stage);
  return out.text();
}

}  // namespace topsum

#endif
