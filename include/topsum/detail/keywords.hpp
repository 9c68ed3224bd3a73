// SPDX-License-Identifier: BSL-1.0
/// \file
/// Sorts the keywords of `plan_allreduce` into their slots.
#ifndef TOPSUM_DETAIL_KEYWORDS_HPP
#define TOPSUM_DETAIL_KEYWORDS_HPP

#include <concepts>
#include <optional>
#include <type_traits>

#include <topsum/core/stage.hpp>
#include <topsum/select/global.hpp>

namespace topsum::detail {

/// A rule alone stands for `global{rule}`; everything else for itself.
template <class S>
[[nodiscard]] constexpr auto as_stage(S const& stage) {
  if constexpr (std::same_as<stage_tag_t<S>, rule_tag>) {
    return global<S>{stage};
  } else {
    return stage;
  }
}
template <class S>
using as_stage_t = decltype(as_stage(std::declval<S const&>()));

template <class Tag, class... S>
inline constexpr int filled = (0 + ... + (std::same_as<stage_tag_t<as_stage_t<S>>, Tag> ? 1 : 0));

template <class... Tags>
struct tags {
  template <class S>
  static constexpr bool hold = (std::same_as<stage_tag_t<as_stage_t<S>>, Tags> || ...);
};
using plan_slots = tags<selection_tag, residual_tag, codec_tag, exchange_tag, reduction_tag, backend_tag, index_tag,
                        nonfinite_tag, coverage_tag>;

/// The stage for slot `Tag` among the keywords, else a `Default`, which is made only then.
template <class Tag, class Default>
[[nodiscard]] constexpr auto pick() {
  return Default{};
}
template <class Tag, class Default, class First, class... Rest>
[[nodiscard]] constexpr auto pick(First const& first, Rest const&... rest) {
  if constexpr (std::same_as<stage_tag_t<as_stage_t<First>>, Tag>) {
    return as_stage(first);
  } else {
    return pick<Tag, Default>(rest...);
  }
}
/// The keyword of slot `Tag`, where there is one.
template <class Tag, class Keyword, class... S>
[[nodiscard]] constexpr std::optional<Keyword> pick_optional(S const&... stages) {
  if constexpr (filled<Tag, S...> == 0) {
    return std::nullopt;
  } else {
    return pick<Tag, Keyword>(stages...);
  }
}
template <class Tag, class Default, class... S>
using pick_t = decltype(pick<Tag, Default>(std::declval<S const&>()...));

}  // namespace topsum::detail

#endif
