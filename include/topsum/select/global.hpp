// SPDX-License-Identifier: BSL-1.0
/// \file
/// Scope: the whole gradient is one piece.
#ifndef TOPSUM_SELECT_GLOBAL_HPP
#define TOPSUM_SELECT_GLOBAL_HPP

#include <string_view>
#include <vector>

#include <topsum/core/piece.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/scope.hpp>

namespace topsum {

/// Scope: the rule is applied to the whole gradient at once. A rule given alone means this.
///
/// The k largest of all tensors together: what Ok-Topk, gTopk and TopkA select from. Prefer `layer_wise` where tensors differ in
/// scale so much that some would never send.
template <class Rule>
struct global : scope<Rule> {
  static constexpr std::string_view name = "global";

  constexpr explicit global(Rule of = {}) : scope<Rule>{of} {}

  /// One piece, the gradient.
  [[nodiscard]] std::vector<piece> pieces(layout const& shapes) const { return {this->whole_piece(0, shapes.size())}; }

  /// An exchange that works by quotas hands them to the rule: see `quota_exchange`.
  template <class B, class Source, class R, class I>
    requires requires(Rule const& rule, B& b, Source const& from, quotas const& wanted, entries_view<B, R, I> out) {
      rule.select_quotas(b, from, wanted, out);
    }
  void select_quotas(B& backend, Source const& from, quotas const& wanted, entries_view<B, R, I> out) const {
    this->rule.select_quotas(backend, from, wanted, out);
  }
};

}  // namespace topsum

#endif
