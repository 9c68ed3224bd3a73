// SPDX-License-Identifier: BSL-1.0
// What selection costs on one core, in units of the loop that no error feedback can avoid: `residual[i] += gradient[i]`.
//
//   bench/select [--log2-n 24] [--repetitions 9] [--quick] [--json]
//
// Every repetition times that loop and one selection, each on a fresh gradient with the residual carried along, and what was
// selected is cleared. The table shows the median over repetitions of the time over the loop's in the same repetition. The loop
// is compiled for the widest vectors of this CPU, and is the better of one with and one without prefetch. `worst` rows are the
// worst of what stands in brackets. Laplace-distributed values; with TOPSUM_GRADIENTS naming a folder that holds recorded ones,
// those too, tiled up to n (rows @conv, @transformer). --quick leaves out all but float on the widest instruction set.

#include "select_inputs.hpp"
#include "thrust_baseline.hpp"

#include <topsum/backend/host.hpp>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>
#include <topsum/select/all_dimension.hpp>
#include <topsum/select/chunked.hpp>
#include <topsum/select/global.hpp>
#include <topsum/select/layer_wise.hpp>
#include <topsum/select/top_k.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using topsum::host;
using topsum::piece;

struct settings {
  int log2_n = 24;
  int repetitions = 9;
  bool quick = false;
  bool json = false;
};

double seconds(std::function<void()> const& run) {
  auto const start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

/// Times of one row of the table.
struct measured {
  std::string what;
  std::vector<double> seconds{};
  std::vector<double> ratios{};
  std::uint64_t second_passes = 0;
};

/// One value type on one instruction set.
template <class T>
class contest {
 public:
  using R = topsum::wide_t<T>;
  using source = topsum::source<host, T, topsum::decayed_residual_sum<T>>;

  contest(settings const& chosen, bench::gradients<T>& gradients, host::instruction_set set, std::string isa,
          std::string suffix)
      : chosen_{chosen},
        gradients_{gradients},
        backend_{set},
        isa_{std::move(isa)},
        suffix_{std::move(suffix)},
        n_{gradients.size()},
        residual_(n_),
        other_(n_) {
    std::ranges::fill(residual_.view(), R{0});
    std::ranges::fill(other_.view(), R{0});
  }

  void run() {
    for (double const density : {0.01, 0.001}) {
      topsum::top_k const rule{.density = density};
      print(density, {global(density, topsum::global{rule}.pieces(n_))});
      quotas(density, rule.count(n_));
      if (!suffix_.empty()) {
        rows(density, rule);
        continue;
      }
      topsum::layout const resnet = bench::resnet50(n_);
      print("layer_wise", density, {selection("161 tensors", topsum::layer_wise{rule}.pieces(resnet))});
      rows(density, rule);
      degenerate(density, topsum::global{rule}.pieces(n_));
      if (density == 0.01) peeks(topsum::global{rule}.pieces(n_));
    }
  }

  /// What people would write, for comparison.
  void others() {
    std::size_t const k = n_ / 100;
    std::vector<R> magnitudes(n_);
    std::vector<std::uint32_t> order(n_);
    print("std::nth_element of magnitudes", 0.01, {timed("copy and select", [&](source const& from) {
            for (std::size_t i = 0; i < n_; ++i) magnitudes[i] = std::abs(residual_.view()[i] += from.gradient[i]);
            std::nth_element(magnitudes.begin(), magnitudes.begin() + static_cast<std::ptrdiff_t>(k), magnitudes.end(),
                             std::greater<>{});
          })});
    print("std::partial_sort of indices", 0.01, {timed("indices", [&](source const& from) {
            auto const r = residual_.view();
            for (std::size_t i = 0; i < n_; ++i) r[i] += from.gradient[i];
            std::iota(order.begin(), order.end(), 0U);
            std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                              [&](std::uint32_t a, std::uint32_t b) { return std::abs(r[a]) > std::abs(r[b]); });
          })});
    if (!bench::has_thrust) return;
    // The threshold is given (the k-th magnitude of what `nth_element` saw): this only accumulates, and compacts.
    R const threshold = magnitudes[k];
    print("thrust::copy_if of positions", 0.01, {timed("accumulate and copy", [&](source const& from) {
            auto const r = residual_.view();
            for (std::size_t i = 0; i < n_; ++i) r[i] += from.gradient[i];
            static_cast<void>(bench::thrust_copy_if<R>(r, threshold, order));
          })});
  }

 private:
  /// Times `verb(source)` beside the floor.
  template <class Verb>
  measured timed(std::string what, Verb const& verb, bool in_place = true,
                 std::function<void()> const& before_each = {}) {
    measured m{std::move(what)};
    std::uint64_t const before = backend_.second_passes();
    for (int r = -1; r < chosen_.repetitions; ++r) {  // the first warms pages up
      if (before_each) before_each();
      double floor = 1e9;
      for (bool const prefetch : {false, true}) {
        std::span<T const> const g = gradients_.next();
        floor = std::min(floor, seconds([&] { bench::floor_loop<T>(residual_.view(), g, prefetch); }));
      }
      source from = in_place_source();
      if (!in_place) from.states_out[0] = other_.view();
      double const time = seconds([&] { verb(from); });
      if (!in_place) std::swap(residual_, other_);
      clear_selected();
      if (r < 0) continue;
      m.seconds.push_back(time);
      m.ratios.push_back(time / floor);
      floors_.push_back(floor);
    }
    m.second_passes = backend_.second_passes() - before;
    return m;
  }

  source in_place_source() {
    return {gradients_.next(), {std::span<R const>{residual_.view()}}, {residual_.view()}, {}, {&fault_, 1}};
  }

  void clear_selected() {
    if (out_.capacity() != 0) clearing_.push_back(seconds([&] { backend_.subtract(out_.view(), residual_.view()); }));
    if (out_.capacity() != 0) out_.view().count[0] = 0;
  }

  void prepare(std::vector<piece> const& pieces) {
    backend_.template reserve_selection<R, std::uint32_t>(pieces);
    out_ = topsum::entries<host, R, std::uint32_t>{backend_, topsum::total_capacity(pieces)};
    thresholds_.assign(topsum::total_groups(pieces), R{0});
    counts_.assign(thresholds_.size(), 0);
  }

  measured selection(std::string what, std::vector<piece> const& pieces) {
    prepare(pieces);
    return timed(std::move(what), [&](source const& from) {
      backend_.select_top_k(from, std::span<piece const>{pieces}, out_.view(), std::span<R>{thresholds_});
    });
  }

  measured threshold(std::string what, std::vector<piece> const& pieces, bool in_place) {
    return timed(
        std::move(what),
        [&](source const& from) {
          backend_.select_at_least(from, std::span<piece const>{pieces}, std::span<R const>{thresholds_}, out_.view(),
                                   std::span<std::size_t>{counts_});
        },
        in_place, [&] {  // thresholds of the step before
          backend_.select_top_k(in_place_source(), std::span<piece const>{pieces}, out_.view(),
                                std::span<R>{thresholds_});
          backend_.subtract(out_.view(), residual_.view());
        });
  }

  /// top_k, and then thresholds that were its k-th magnitudes.
  std::vector<std::pair<std::string, measured>> global(double, std::vector<piece> const& pieces) {
    std::vector<std::pair<std::string, measured>> all;
    all.emplace_back("top_k", selection("", pieces));
    clearing_.clear();
    floors_.clear();
    all.emplace_back("threshold_fused", threshold("", pieces, true));
    measured clear{""};
    for (std::size_t i = 0; i < floors_.size(); ++i) {
      clear.seconds.push_back(clearing_[i + 1]);
      clear.ratios.push_back(clearing_[i + 1] / floors_[i]);
    }
    all.emplace_back("threshold_fused_rollback", threshold("", pieces, false));
    all.emplace_back("residual_clear", clear);
    return all;
  }

  /// Each owner's largest, as `interleaved_quota` selects.
  void quotas(double density, std::size_t k) {
    std::vector<measured> all;
    for (std::size_t const owners : {std::size_t{4}, std::size_t{64}}) {
      topsum::quotas const wanted{{n_, owners, 32}, k / owners};
      backend_.template reserve_quotas<R, std::uint32_t>(wanted);
      out_ = topsum::entries<host, R, std::uint32_t>{backend_, wanted.total()};
      all.push_back(timed(std::to_string(owners) + " owners",
                          [&](source const& from) { backend_.select_quotas(from, wanted, out_.view()); }));
    }
    print("quotas", density, all);
  }

  void rows(double density, topsum::top_k const& rule) {
    std::vector<measured> linear;
    for (std::size_t const length : {std::size_t{768}, std::size_t{1024}, std::size_t{4096}}) {
      topsum::layout const shapes{{"weight", {n_ / length, length}}, {"rest", {n_ % length}}};
      linear.push_back(selection("rows of " + std::to_string(length), topsum::all_dimension{rule}.pieces(shapes)));
    }
    print("all_dimension_linear", density, linear);
    std::vector<measured> conv;
    for (std::size_t const channels : {std::size_t{512}, std::size_t{64}}) {
      std::size_t const each = channels * channels * 9;
      std::vector<topsum::tensor> tensors(n_ / each, topsum::tensor{"weight", {channels, channels, 3, 3}});
      tensors.push_back({"rest", {n_ - n_ / each * each}});
      conv.push_back(selection(std::to_string(channels) + " x " + std::to_string(channels) + " x 3 x 3",
                               topsum::all_dimension{rule}.pieces(topsum::layout{tensors})));
    }
    print("all_dimension_conv", density, conv);
    if (density == 0.01)
      print("chunked", 32.0 / 4096,
            {selection("runs of 4096, k = 32",
                       topsum::chunked{topsum::top_k{.k = 32}, topsum::runs{}}.pieces(topsum::layout{n_}))});
  }

  void degenerate(double density, std::vector<piece> const& pieces) {
    std::vector<measured> all;
    for (std::string const kind : {"all zero", "all equal", "one in 200"}) {
      std::vector<T> same(n_, topsum::from_wide<T>(kind == "all equal" ? R{1} : R{0}));
      if (kind == "one in 200") {
        for (std::size_t i = 0; i < n_; i += 200) same[i] = topsum::from_wide<T>(static_cast<R>(i % 7) + 1);
      }
      prepare(pieces);
      measured m = timed(kind, [&](source const& from) {
        source degenerate = from;
        degenerate.gradient = same;
        backend_.fill(residual_.view(), R{0});  // timed too: taken off below
        backend_.select_top_k(degenerate, std::span<piece const>{pieces}, out_.view(), std::span<R>{thresholds_});
      });
      double const filling = seconds([&] { backend_.fill(residual_.view(), R{0}); });
      for (std::size_t i = 0; i < m.ratios.size(); ++i) {
        m.ratios[i] *= (m.seconds[i] - filling) / m.seconds[i];
        m.seconds[i] -= filling;
      }
      all.push_back(std::move(m));
    }
    print("top_k_degenerate", density, all);
  }

  /// What rules that estimate a threshold read before the pass.
  void peeks(std::vector<piece> const& pieces) {
    prepare(pieces);
    std::vector<topsum::moments> sums(pieces.size());
    print("moments", 0.01, {timed("", [&](source const& from) {
            backend_.moments(from, std::span<piece const>{pieces}, std::span<R const>{thresholds_}, std::span{sums});
          })});
    print("sample_kth", 0.01, {timed("", [&](source const& from) {
            backend_.sample_kth(from, std::span<piece const>{pieces}, topsum::sampling{10'000'000, 1},
                                std::span<R>{thresholds_});
          })});
  }

  void print(double density, std::vector<std::pair<std::string, measured>> const& each) {
    for (auto const& [name, m] : each) print(name, density, {m});
  }
  /// The worst of several.
  void print(std::string const& name, double density, std::vector<measured> const& several) {
    auto const worst = std::ranges::max_element(
        several, [](measured const& a, measured const& b) { return median(a.ratios) < median(b.ratios); });
    std::string const title = name + suffix_;
    if (chosen_.json) {
      std::printf(
          "{\"name\": \"%s\", \"n\": %zu, \"density\": %g, \"value_type\": \"%s\", \"isa\": \"%s\", "
          "\"median_seconds\": %.6f, \"ratio_to_floor\": %.3f, \"second_passes\": %llu}\n",
          title.c_str(), n_, density, bench::type_name<T>, isa_.c_str(), median(worst->seconds), median(worst->ratios),
          static_cast<unsigned long long>(worst->second_passes));
    } else {
      std::printf("%-32s %6.2f %%  %-8s %-8s %8.2f ms %6.2f  second passes %llu", title.c_str(), density * 100,
                  bench::type_name<T>, isa_.c_str(), median(worst->seconds) * 1e3, median(worst->ratios),
                  static_cast<unsigned long long>(worst->second_passes));
      for (measured const& m : several) {
        if (!m.what.empty())
          std::printf("%s%s %.2f", &m == several.data() ? "  [" : ", ", m.what.c_str(), median(m.ratios));
      }
      std::printf("%s\n", several.front().what.empty() ? "" : "]");
    }
    std::fflush(stdout);
  }

  settings const& chosen_;
  bench::gradients<T>& gradients_;
  host backend_;
  std::string isa_;
  std::string suffix_;
  std::size_t n_;
  topsum::host_buffer<R> residual_;
  topsum::host_buffer<R> other_;
  topsum::entries<host, R, std::uint32_t> out_;
  std::vector<R> thresholds_;
  std::vector<std::size_t> counts_;
  std::vector<double> clearing_;
  std::vector<double> floors_;
  topsum::nonfinite_record fault_;
};

template <class T>
void run_type(settings const& chosen, std::size_t n, bool widest_only) {
  using set = host::instruction_set;
  bench::gradients<T> laplace = bench::laplace_gradients<T>(n);
  for (auto const& [isa, name] : {std::pair{set::avx512, "avx512"}, {set::avx2, "avx2"}, {set::portable, "portable"}}) {
    if (!topsum::detail::cpu_has(isa)) continue;
    contest<T> one{chosen, laplace, isa, name, ""};
    one.run();
    if constexpr (std::same_as<T, float>) {
      if (topsum::detail::resolved(set::automatic) == isa) one.others();
    }
    if (widest_only) break;
  }
}

/// The instruction set that is used where none is asked for.
std::string widest_name() {
  switch (topsum::detail::resolved(host::instruction_set::automatic)) {
    case host::instruction_set::avx512: return "avx512";
    case host::instruction_set::avx2: return "avx2";
    case host::instruction_set::portable:
    case host::instruction_set::automatic: break;
  }
  return "portable";
}

settings parse(int argc, char** argv) {
  settings chosen;
  for (int i = 1; i < argc; ++i) {
    std::string_view const option = argv[i];
    auto const number = [&](int low, int high) {
      int const value = i + 1 < argc ? std::atoi(argv[++i]) : low - 1;
      if (value < low || value > high) {
        std::fprintf(stderr, "select: %s takes a number from %d to %d\n", argv[i - 1], low, high);
        std::exit(2);
      }
      return value;
    };
    if (option == "--log2-n") {
      chosen.log2_n = number(12, 30);
    } else if (option == "--repetitions") {
      chosen.repetitions = number(1, 1000);
    } else if (option == "--quick") {
      chosen.quick = true;
    } else if (option == "--json") {
      chosen.json = true;
    } else {
      std::fprintf(stderr, "usage: select [--log2-n 24] [--repetitions 9] [--quick] [--json]\n");
      std::exit(option == "--help" ? 0 : 2);
    }
  }
  return chosen;
}

}  // namespace

int main(int argc, char** argv) {
  settings const chosen = parse(argc, argv);
  std::size_t const n = std::size_t{1} << chosen.log2_n;
  run_type<float>(chosen, n, chosen.quick);
  for (std::string const kind : {"conv", "transformer"}) {
    if (auto recorded = bench::recorded_gradients(kind, n)) {
      contest<float>{chosen, *recorded, host::instruction_set::automatic, widest_name(), "@" + kind}.run();
    } else {
      std::fprintf(stderr, "select: no recorded gradients @%s; TOPSUM_GRADIENTS names no folder with %s.bf16\n",
                   kind.c_str(), kind.c_str());
    }
  }
  if (chosen.quick) return 0;
  run_type<double>(chosen, n, true);
  run_type<topsum::half>(chosen, n, true);
  run_type<topsum::bfloat16>(chosen, n, true);
}
