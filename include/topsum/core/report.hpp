// SPDX-License-Identifier: BSL-1.0
/// \file
/// What one step did.
#ifndef TOPSUM_CORE_REPORT_HPP
#define TOPSUM_CORE_REPORT_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace topsum {

/// What one step did on this rank. Prints itself in one line.
struct report {
  std::uint64_t step = 0;           ///< completed calls before this one
  std::size_t n = 0;                ///< values in the gradient
  std::size_t selected = 0;         ///< entries that this rank's policy selected
  std::size_t sent = 0;             ///< of those, entries that entered the exchange
  std::size_t result = 0;           ///< entries in the result, the same on every rank (n under `dense`)
  std::size_t nonfinite = 0;        ///< non-finite values of this rank that counted as zero
  std::uint64_t messages = 0;       ///< messages sent by this rank; a native collective counts as its ring
  std::uint64_t bytes = 0;          ///< bytes sent by this rank in all
  std::uint64_t control_bytes = 0;  ///< of those: headers, counts and boundaries, O(P)
  std::uint64_t dense_bytes = 0;    ///< what a dense ring allreduce would send: 2 n (P-1)/P values
  std::optional<double>
      selected_coverage{};           ///< share of rows in this rank's selection, if `row_coverage` was asked for
  std::optional<double> coverage{};  ///< the same of the result
  bool scope_kept =
      true;  ///< whether every entry that the policy selected was applied, or there is one group only; else its
             ///< scope's promise (every layer, row or chunk gets its share) ended in the exchange
  std::string_view exchange;  ///< the exchange's name; under `automatic` that of the chosen one
  std::optional<double>
      predicted_seconds{};  ///< under `automatic`: what it takes by the formulas, to be compared with exchange_seconds
  double select_seconds = 0;    ///< accumulate and select
  double exchange_seconds = 0;  ///< encode, send, reduce, gather, decode
  double apply_seconds = 0;     ///< residual and result

  /// Selected share of the values.
  [[nodiscard]] double effective_density() const {
    return n == 0 ? 0 : static_cast<double>(selected) / static_cast<double>(n);
  }
  /// Bytes sent over those of a dense ring allreduce; 0 on a single rank.
  [[nodiscard]] double share_of_dense() const {
    return dense_bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(dense_bytes);
  }

  [[nodiscard]] std::string to_string() const {
    char line[320];
    std::snprintf(line, sizeof line,
                  "step %llu: selected %zu of %zu (%.3g %%), sent %zu, result %zu; %llu bytes in %llu messages (%.3g "
                  "%% of dense); "
                  "select %.3g ms, exchange %.3g ms, apply %.3g ms",
                  static_cast<unsigned long long>(step), selected, n, 100 * effective_density(), sent, result,
                  static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(messages),
                  100 * share_of_dense(), 1e3 * select_seconds, 1e3 * exchange_seconds, 1e3 * apply_seconds);
    std::string text{line};
    if (!scope_kept) text += "; the scope's promise ended in the exchange";
    if (predicted_seconds) {
      std::snprintf(line, sizeof line, "; chose %.*s, predicted %.3g ms", static_cast<int>(exchange.size()),
                    exchange.data(), 1e3 * *predicted_seconds);
      text += line;
    }
    if (coverage) {
      std::snprintf(line, sizeof line, "; rows with entries %.3g %%, selected %.3g %%", 100 * *coverage,
                    100 * selected_coverage.value_or(0));
      text += line;
    }
    return text;
  }
  friend std::ostream& operator<<(std::ostream& out, report const& r) { return out << r.to_string(); }
};

}  // namespace topsum

#endif
