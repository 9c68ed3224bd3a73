// SPDX-License-Identifier: BSL-1.0
/// \file
/// The table at the end of the demo.
#ifndef MNIST_TABLE_HPP
#define MNIST_TABLE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>

#include "mnist/train.hpp"

namespace mnist {

/// One training in the table.
struct table_row {
  std::string name;
  run_result result;
};

/// Bytes that a rank sends in a dense allreduce of n floats, as a ring or any other optimal one: 2n(P-1)/P words.
[[nodiscard]] inline double dense_wire_bytes(std::size_t n, int ranks) noexcept {
  return 2 * sizeof(float) * static_cast<double>(n) * (ranks - 1) / ranks;
}

/// A whole number with its thousands set apart: 1 234 567.
[[nodiscard]] inline std::string spaced(double number) {
  char digits[64];
  std::snprintf(digits, sizeof digits, "%.0f", number);
  std::string text;
  for (std::size_t left = std::strlen(digits), at = 0; left > 0; --left, ++at) {
    if (at > 0 && left % 3 == 0) text.push_back(' ');
    text.push_back(digits[at]);
  }
  return text;
}

/// One line about what was selected.
[[nodiscard]] inline std::string format_selection(run_result const& result) {
  char line[160];
  std::snprintf(
      line, sizeof line,
      "  a step selects %.3g %% of the values; of the gradient's rows, %.1f %% have entries, %.1f %% in the result",
      100 * result.density, 100 * result.rows_selected, 100 * result.rows_applied);
  return line;
}

/// The rows under their headings; ends with a line break.
[[nodiscard]] inline std::string format_table(std::span<table_row const> rows, int ranks) {
  int width = 8;
  for (auto const& row : rows) width = std::max(width, static_cast<int>(row.name.size()));
  char line[256];
  std::string text;
  auto const add = [&] { text.append(line).append("\n"); };

  std::snprintf(line, sizeof line, "%-*s  %8s  %14s  %8s  %35s", width, "", "test", "wire bytes per", "share of",
                "milliseconds per step");
  add();
  std::snprintf(line, sizeof line, "%-*s  %8s  %14s  %8s  %8s %8s %8s %8s", width, "training", "accuracy",
                "rank and step", "dense", "compute", "select", "exchange", "other");
  add();
  for (auto const& [name, result] : rows) {
    char share[16] = "-";
    double const dense = dense_wire_bytes(result.parameters, ranks);
    if (dense > 0) std::snprintf(share, sizeof share, "%.1f %%", 100 * result.wire_bytes / dense);
    std::snprintf(line, sizeof line, "%-*s  %6.1f %%  %14s  %8s  %8.3f %8.3f %8.3f %8.3f", width, name.c_str(),
                  100 * result.accuracy, spaced(result.wire_bytes).c_str(), share, 1e3 * result.compute_seconds,
                  1e3 * result.select_seconds, 1e3 * result.exchange_seconds, 1e3 * result.other_seconds);
    add();
  }
  return text;
}

}  // namespace mnist

#endif  // MNIST_TABLE_HPP
