// SPDX-License-Identifier: BSL-1.0
/// \file
/// How near each selection rule comes to k entries and to the energy of the exact top k, on recorded gradients, and how many passes
/// over memory it takes.
///
///     TOPSUM_GRADIENTS=folder selection_quality
///
/// The folder holds `conv.bf16`, `conv.json`, `transformer.bf16` and `transformer.json`: gradients of 64 steps of two workers as
/// little-endian bfloat16, in the order [step][worker][parameter]; the json has "steps", "workers" and "n". Worker 0's gradients go
/// through error feedback under the scope `global`, and every entry selected counts as applied. Prints a table for docs/selection.md.
///
/// Count: entries selected in a step. Energy: the sum of squares of what was selected over that of the exact top k of the same
/// accumulators (of this rule's own run), the median over the steps. Passes: values of gradient and residual moved by the backend's
/// verbs, counted as they are called, over those of one pass (gradient and residual read, residual written: 3 a parameter). A peek
/// reads 2 of the 3, and nothing of a group that is settled; a sampled element counts as two whole cache lines; what a verb does
/// inside, such as the small sample of `select_top_k`, is not counted.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <topsum/topsum.hpp>

namespace {

/// The host backend, counting the values that selecting and peeking verbs move.
class counting_host : public topsum::host {
 public:
  static constexpr std::size_t line = 64 / sizeof(float);

  template <class R, class I>
  using list = topsum::entries_view<counting_host, R, I>;

  template <class T, class F, class I>
  void select_top_k(topsum::source<counting_host, T, F> const& from, std::span<topsum::piece const> pieces,
                    list<topsum::wide_t<T>, I> const& out, std::span<topsum::wide_t<T>> kth) {
    moved_ += 3 * from.size();
    host::select_top_k(plain(from), pieces, plain(out), kth);
  }
  template <class T, class F, class I>
  void select_at_least(topsum::source<counting_host, T, F> const& from, std::span<topsum::piece const> pieces,
                       std::span<float const> thresholds, list<topsum::wide_t<T>, I> const& out,
                       std::span<std::size_t> counts) {
    moved_ += 3 * from.size();
    host::select_at_least(plain(from), pieces, thresholds, plain(out), counts);
  }
  template <class T, class F, class Predicate, class I>
  void select_if(topsum::source<counting_host, T, F> const& from, std::span<topsum::piece const> pieces,
                 Predicate predicate, list<topsum::wide_t<T>, I> const& out) {
    moved_ += 3 * from.size();
    host::select_if(plain(from), pieces, predicate, plain(out));
  }
  template <class T, class F>
  void accumulate(topsum::source<counting_host, T, F> const& from, std::span<topsum::wide_t<T>> out) {
    moved_ += 4 * from.size();
    host::accumulate(plain(from), out);
  }
  template <class T, class F, class I>
  void select_at(topsum::source<counting_host, T, F> const& from, list<topsum::wide_t<T>, I> const& out) {
    moved_ += 3 * from.size();
    host::select_at(plain(from), plain(out));
  }
  template <class T, class F>
  void moments(topsum::source<counting_host, T, F> const& from, std::span<topsum::piece const> pieces,
               std::span<topsum::wide_t<T> const> thresholds, std::span<topsum::moments> out) {
    std::size_t g = 0;
    for (topsum::piece const& p : pieces) {
      for (std::size_t i = 0; i < topsum::group_count(p); ++i, ++g)
        moved_ += topsum::is_finite(thresholds[g]) ? 2 * topsum::group_at(p, i).size() : 0;
    }
    host::moments(plain(from), pieces, thresholds, out);
  }
  template <class T, class F>
  void sample_kth(topsum::source<counting_host, T, F> const& from, std::span<topsum::piece const> pieces,
                  topsum::sampling how, std::span<topsum::wide_t<T>> out) {
    for (topsum::piece const& p : pieces) {
      for (std::size_t i = 0; i < topsum::group_count(p); ++i) {
        std::size_t const size = topsum::group_at(p, i).size();
        if (p.count != 0) moved_ += std::min(2 * size, 2 * line * how.elements(size, std::min(p.count, size)));
      }
    }
    host::sample_kth(plain(from), pieces, how, out);
  }
  template <class R, class I>
  void keep_at_least(list<R, I> const& a, topsum::bits_t<R> t, std::size_t ties, list<R, I> const& out) {
    host::keep_at_least(plain(a), t, ties, plain(out));
  }

  /// Values moved since the last call.
  std::size_t moved() { return std::exchange(moved_, 0); }

 private:
  template <class R, class I>
  static topsum::entries_view<host, R, I> plain(list<R, I> const& a) {
    return {a.indices, a.values, a.count};
  }
  template <class T, class F>
  static topsum::source<host, T, F> plain(topsum::source<counting_host, T, F> const& from) {
    return {from.gradient, from.states_in, from.states_out, from.formula, from.fault};
  }

  std::size_t moved_ = 0;
};

/// One network's recorded gradients of worker 0.
struct recording {
  std::size_t n = 0;
  std::vector<std::vector<float>> steps;
};

/// A whole number in flat json.
std::size_t number_in(std::string const& json, std::string const& key) {
  std::size_t const at = json.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::strtoull(json.c_str() + at + key.size() + 3, nullptr, 10);
}

std::string contents_of(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Nothing where the files are missing or not whole.
std::optional<recording> recorded(std::string const& folder, std::string const& network) {
  std::string const json = contents_of(folder + "/" + network + ".json");
  std::string const bytes = contents_of(folder + "/" + network + ".bf16");
  std::size_t const n = number_in(json, "n");
  std::size_t const steps = number_in(json, "steps");
  std::size_t const workers = number_in(json, "workers");
  if (n == 0 || workers == 0 || bytes.size() != 2 * n * steps * workers) return {};
  recording all{n, {}};
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t const at = 2 * (step * workers * n + i);
      auto const low = static_cast<unsigned char>(bytes[at]);
      auto const high = static_cast<unsigned char>(bytes[at + 1]);
      values[i] = std::bit_cast<float>((std::uint32_t{high} << 24) | (std::uint32_t{low} << 16));
    }
    all.steps.push_back(std::move(values));
  }
  return all;
}

struct quality {
  std::vector<double> count;   ///< over k, of each step
  std::vector<double> energy;  ///< over that of the exact top k
  std::vector<double> passes;
};

/// Runs a rule over all steps of a recording.
template <class Rule>
quality measure(Rule const& rule, recording const& from, std::size_t k) {
  using B = counting_host;
  B backend;
  topsum::global const policy{rule};
  policy.validate();
  auto const pieces = policy.pieces(from.n);
  std::span<topsum::piece const> const view{pieces};
  backend.reserve_selection<float, std::uint32_t>(view);
  typename Rule::template state<B, float> before{backend, view};
  typename Rule::template state<B, float> after{backend, view};
  topsum::error_feedback const residual;
  topsum::error_feedback::state<B, float> memory{backend, from.n, residual};
  topsum::entries<B, float, std::uint32_t> out{backend, topsum::total_capacity(view)};
  topsum::nonfinite_record fault;

  quality q;
  for (std::size_t step = 0; step < from.steps.size(); ++step) {
    auto const source = residual.accumulate<B, float>(backend, from.steps[step], memory, {&fault, 1});
    policy.select(backend, source, view, step, std::as_const(before), after, out.view());
    std::swap(before, after);
    q.passes.push_back(static_cast<double>(backend.moved()) / static_cast<double>(3 * from.n));

    std::size_t const count = out.view().count[0];
    q.count.push_back(static_cast<double>(count) / static_cast<double>(k));
    auto const square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
    std::span<float> const residuals = memory.current();
    std::vector<double> squares;
    for (float x : residuals) squares.push_back(square(x));
    std::nth_element(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(k - 1), squares.end(),
                     std::greater<>{});
    double exact = 0;
    for (std::size_t i = 0; i < k; ++i) exact += squares[i];
    double captured = 0;
    for (std::size_t e = 0; e < count; ++e) {
      captured += square(out.view().values[e]);
      residuals[out.view().indices[e]] = 0;
    }
    q.energy.push_back(captured / exact);
  }
  return q;
}

double at_rank(std::vector<double> values, double rank) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(rank * static_cast<double>(values.size() - 1))];
}
double mean(std::vector<double> const& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::string spread(std::vector<double> const& values) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f, %.2f, %.2f", at_rank(values, 0), at_rank(values, 0.5), at_rank(values, 1));
  return text;
}

/// Prints a rule's row; and its counts once more where 8k entries may travel, unless the count is fixed.
template <class Rule>
void row(char const* name, Rule rule, recording const& from, std::size_t k) {
  quality const q = measure(rule, from, k);
  std::string wide = "the same";
  if constexpr (!Rule::fixed_count) {
    rule.at_most = 8 * k;
    wide = spread(measure(rule, from, k).count);
  }
  std::printf("| %s | %s | %.3f | %.2f, %.2f | %s |\n", name, spread(q.count).c_str(), at_rank(q.energy, 0.5),
              mean(q.passes), at_rank(q.passes, 1), wide.c_str());
}

/// What the exact rule meets on its own run.
struct exact_thresholds {
  double median = 0;            ///< what a user would give as a fixed threshold
  std::vector<double> lowered;  ///< count/k at 0.8 times each step's threshold
  std::vector<double> raised;   ///< and at 1.3 times
};

exact_thresholds exact(recording const& from, std::size_t k) {
  exact_thresholds all;
  std::vector<float> residual(from.n);
  std::vector<double> thresholds;
  for (auto const& gradient : from.steps) {
    std::vector<float> sizes;
    for (std::size_t i = 0; i < from.n; ++i) {
      residual[i] += gradient[i];
      sizes.push_back(std::abs(residual[i]));
    }
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(k - 1), sizes.end(), std::greater<>{});
    float const threshold = sizes[k - 1];
    auto const share = [&](float t) {
      auto const count = std::count_if(sizes.begin(), sizes.end(), [t](float size) { return size >= t; });
      return static_cast<double>(count) / static_cast<double>(k);
    };
    thresholds.push_back(static_cast<double>(threshold));
    all.lowered.push_back(share(0.8F * threshold));
    all.raised.push_back(share(1.3F * threshold));
    for (float& x : residual) x = std::abs(x) >= threshold ? 0.0F : x;
  }
  all.median = at_rank(thresholds, 0.5);
  return all;
}

void table(std::string const& network, recording const& from, double density) {
  std::size_t const k = topsum::top_k{.density = density}.count(from.n);
  std::printf("\n%s, n = %zu, k = %zu (%g %%)\n\n", network.c_str(), from.n, k, 100 * density);
  std::printf("| rule | count/k: least, median, most | energy | passes: mean, most | count/k with `.at_most = 8k` |\n");
  std::printf("|---|---|---|---|---|\n");
  using topsum::tail_fit;
  row("`top_k`", topsum::top_k{.density = density}, from, k);
  row("`reused_threshold`", topsum::reused_threshold{.density = density}, from, k);
  row("`sampled_threshold`", topsum::sampled_threshold{.density = density}, from, k);
  row("`gaussian_threshold`", topsum::gaussian_threshold{.density = density}, from, k);
  row("`exponential_threshold`", topsum::exponential_threshold{.density = density}, from, k);
  row("same, `gamma`", topsum::exponential_threshold{.density = density, .fit = tail_fit::gamma}, from, k);
  row("same, `generalized_pareto`",
      topsum::exponential_threshold{.density = density, .fit = tail_fit::generalized_pareto}, from, k);
  row("`bisected_threshold`", topsum::bisected_threshold{.density = density}, from, k);
  exact_thresholds const met = exact(from, k);
  row("`fixed_threshold`", topsum::fixed_threshold{.threshold = met.median, .density = density}, from, k);
  row("`shared_random`", topsum::shared_random{.density = density}, from, k);
  std::printf("\nThe exact threshold times 0.8 lets %s k through; times 1.3 %s.\n", spread(met.lowered).c_str(),
              spread(met.raised).c_str());
}

}  // namespace

int main() {
  char const* const folder = std::getenv("TOPSUM_GRADIENTS");
  if (folder == nullptr) {
    std::fprintf(
        stderr,
        "selection_quality: TOPSUM_GRADIENTS is not set; set it to the folder that holds conv.bf16, conv.json, "
        "transformer.bf16 and transformer.json\n");
    return 2;
  }
  for (std::string const network : {"conv", "transformer"}) {
    auto const from = recorded(folder, network);
    if (!from.has_value()) {
      std::fprintf(stderr, "selection_quality: %s/%s.bf16 and .json are missing or do not fit together\n", folder,
                   network.c_str());
      return 2;
    }
    for (double const density : {0.01, 0.001}) table(network, *from, density);
  }
}
