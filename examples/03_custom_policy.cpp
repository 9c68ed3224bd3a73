// SPDX-License-Identifier: BSL-1.0
// A rule of one's own: a struct that opts in by its tag and says, in a backend's verbs, which entries it selects.
// The library's laws then check it as they check its own rules. The rules for writing one: docs/writing-a-policy.md.

#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

/// Selects the values above a bound in one slice of the positions a step: every `slices`-th, beginning with the step's own.
/// What a slice holds beyond `k` entries is cut by magnitude, as everywhere.
struct sliced_threshold {
  using stage_tag = topsum::rule_tag;                           // the slot that it fills
  static constexpr std::string_view name = "sliced_threshold";  // for messages; ranks compare it
  static constexpr bool fixed_count = false;                    // how many it selects depends on the data

  double at_least = 0.5;  ///< magnitude from which a value travels, above 0
  std::size_t slices = 4;
  std::size_t k = 100;

  // It keeps nothing between steps.
  template <class B, class R>
  struct state {
    state(B&, std::span<topsum::piece const>) {}
  };

  // Called on every rank when a plan is made; a mistake on one rank becomes an error on all.
  void validate() const {
    if (!(at_least > 0)) throw topsum::error{topsum::errc::bad_argument, "sliced_threshold: .at_least must be above 0"};
    if (slices == 0) throw topsum::error{topsum::errc::bad_argument, "sliced_threshold: .slices must be at least 1"};
  }

  [[nodiscard]] std::size_t count(std::size_t size) const { return std::min(k, size); }
  [[nodiscard]] std::size_t capacity(std::size_t size) const { return count(size); }

  template <class B, class Source, class R, class I>
  void select(B& backend, Source const& from, std::span<topsum::piece const> pieces, std::uint64_t step,
              state<B, R> const&, state<B, R>&, topsum::entries_view<B, R, I> out) const {
    backend.select_if(
        from, pieces,
        [bound = topsum::magnitude(static_cast<R>(at_least)), m = slices, mine = step % slices](
            std::size_t position, R x) { return position % m == mine && topsum::magnitude(x) >= bound; },
        out);
  }

  // Its parameters, for people and for the ranks to compare.
  void describe(topsum::description& out) const {
    out.open(name);
    out("at_least", at_least);
    out("slices", slices);
    out("k", k);
    out.close();
  }
};

}  // namespace

int main() {
  // The laws, over inputs that find faults: they return what failed.
  topsum::layout const shapes{{"embedding", {100, 30}}, {"bias", {100}}};
  auto const failures = topsum::laws::selection_policy<float>(topsum::layer_wise{sliced_threshold{}}, shapes);
  for (auto const& failure : failures) std::printf("%s\n", failure.c_str());
  std::printf("%s: %zu failures\n", topsum::to_text(sliced_threshold{}).c_str(), failures.size());

  // Used like the library's own, under any scope and with any exchange.
  topsum::local::run(2, [&](topsum::local::communicator ranks) {
    auto reduce = topsum::plan_allreduce<float>(ranks, shapes, topsum::layer_wise{sliced_threshold{.slices = 2}},
                                                topsum::gather_all{});
    std::vector<float> gradient(shapes.size(), 0.1F);
    for (std::size_t i = 0; i < 20; ++i) gradient[i] = 1;
    for (int step = 0; step < 2; ++step) {
      auto const report = reduce(gradient);
      if (ranks.rank() == 0)
        std::printf("step %d: %zu entries selected, gradient[0] = %g, gradient[1] = %g\n", step, report.selected,
                    static_cast<double>(gradient[0]), static_cast<double>(gradient[1]));
      std::ranges::fill(gradient, 0.0F);
    }
  });
  return failures.empty() ? 0 : 1;
}
