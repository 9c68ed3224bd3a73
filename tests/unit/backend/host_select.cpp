// SPDX-License-Identifier: BSL-1.0
// The host's selecting verbs against sorting, on every instruction set.
#include <doctest/doctest.h>

#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>

#include "oracle.hpp"

using namespace test;

namespace {

constexpr std::size_t any_size[] = {0, 1, 2, 31, 63, 64, 65, 127, 128, 997, 4095, 4096, 4097, 5003};

// One piece over everything.
std::vector<piece> whole(std::size_t n, std::size_t count, std::size_t capacity) { return {{0, n, count, capacity}}; }

// Tensors of mixed sizes with gaps between them, empty ones included.
std::vector<piece> mixed(std::size_t n, unsigned seed) {
  std::mt19937 random{seed};
  std::vector<piece> pieces;
  std::size_t begin = 0;
  while (begin < n) {
    std::size_t const kind = random() % 5;
    std::size_t const size = std::min<std::size_t>(n - begin, kind == 0   ? 0
                                                              : kind == 1 ? random() % 64
                                                              : kind == 2 ? random() % 5000
                                                              : kind == 3 ? 768
                                                                          : random() % 20000);
    std::size_t const k = size == 0           ? 0
                          : random() % 7 == 0 ? 0
                          : random() % 3 == 0 ? random() % (size + 1)
                                              : size / 100 + 1;
    pieces.push_back({begin, size, std::min(k, size), std::min(k, size)});
    begin += size + (random() % 4 == 0 ? random() % 100 : 0) + (size == 0 ? 1 : 0);
  }
  return pieces;
}

// Positions of each group of a piece, one by one.
struct positions {
  std::vector<std::size_t> positions;
};
std::vector<positions> groups_of(piece const& p) {
  std::vector<positions> all(topsum::is_whole(p) ? 1 : 0);
  for (std::size_t i = 0; i < p.size; ++i) {
    std::size_t const g = topsum::is_whole(p) ? 0 : topsum::group_of(p, p.begin + i);
    if (g >= all.size()) all.resize(g + 1);
    all[g].positions.push_back(p.begin + i);
  }
  return all;
}

template <class R, class I>
void append(list_of<R, I> const& more, list_of<R, I>& list) {
  list.indices.insert(list.indices.end(), more.indices.begin(), more.indices.end());
  list.values.insert(list.values.end(), more.values.begin(), more.values.end());
}
template <class R, class I>
void in_order(list_of<R, I>& list) {
  std::vector<std::pair<I, R>> entries;
  for (std::size_t i = 0; i < list.indices.size(); ++i) entries.emplace_back(list.indices[i], list.values[i]);
  std::sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < entries.size(); ++i) std::tie(list.indices[i], list.values[i]) = entries[i];
}

struct checks {
  std::size_t made = 0;
  std::size_t failed = 0;
  void operator()(bool good) {
    ++made;
    failed += good ? 0U : 1U;
  }
};

// All verbs on one input.
template <class T, class I, class Formula>
void check_all(checks& check, host backend, arena<T, Formula>& a, Formula formula, std::vector<piece> const& pieces,
               bool in_place) {
  using R = wide_t<T>;
  std::span<piece const> const view{pieces};
  auto const e = evaluate<T, Formula>(a.gradient, a.before, formula);
  std::size_t const total = topsum::total_capacity(pieces);
  backend.template reserve_selection<R, I>(view);
  std::size_t const reserved = backend.allocated_bytes();

  list_of<R, I> expected;
  std::vector<R> expected_kth;
  for (piece const& p : pieces) {
    for (auto const& g : groups_of(p)) {
      list_of<R, I> one;
      append_first(g.positions, e.accumulators, std::min(p.count, g.positions.size()), one);
      R least = 0;
      if (!one.values.empty()) {
        least = std::abs(one.values[0]);
        for (R x : one.values) least = std::min(least, std::abs(x));
      }
      expected_kth.push_back(least);
      append(one, expected);
    }
  }
  in_order(expected);
  {
    room<R, I> out{total};
    std::vector<R> kth(expected_kth.size(), R{-1});
    backend.select_top_k(a.source(formula, in_place), view, out.view(), std::span{kth});
    check(out.count == expected.indices.size() && out.list() == expected);
    check(out.guarded());
    check(same_bits(kth, expected_kth));
    check(a.agrees(e));
  }
  // Thresholds: the k-th magnitude (all ties qualify), a lower one (cut), zero.
  for (int scale : {1, 2, 0}) {
    std::vector<R> thresholds;
    std::vector<std::size_t> counts(expected_kth.size(), 99);
    std::vector<std::size_t> expected_counts;
    list_of<R, I> kept;
    for (piece const& p : pieces) {
      for (auto const& g : groups_of(p)) {
        R const t = scale == 0 ? R{0} : expected_kth[thresholds.size()] / static_cast<R>(scale);
        thresholds.push_back(t);
        std::vector<std::size_t> at;
        for (std::size_t i : g.positions) {
          R const x = e.accumulators[i];
          if (topsum::magnitude(x) >= topsum::magnitude(t) && topsum::magnitude(x) != 0) at.push_back(i);
        }
        expected_counts.push_back(std::min(at.size(), 2 * std::max(p.count, p.capacity)));
        append_first(at, e.accumulators, p.capacity, kept);
      }
    }
    in_order(kept);
    room<R, I> out{total};
    backend.select_at_least(a.source(formula, in_place), view, std::span<R const>{thresholds}, out.view(),
                            std::span{counts});
    check(out.count == kept.indices.size() && out.list() == kept);
    check(out.guarded());
    check(counts == expected_counts);
    check(a.agrees(e));
  }
  {
    auto const holds = [](std::size_t i, R x) { return (i * 2654435761U >> 7) % 3 == 0 && !(x > R{1}); };
    list_of<R, I> kept;
    for (piece const& p : pieces) {
      for (auto const& g : groups_of(p)) {
        std::vector<std::size_t> at;
        for (std::size_t i : g.positions) {
          if (holds(i, e.accumulators[i])) at.push_back(i);
        }
        append_first(at, e.accumulators, p.capacity, kept);
      }
    }
    in_order(kept);
    room<R, I> out{total};
    backend.select_if(a.source(formula, in_place), view, holds, out.view());
    check(out.count == kept.indices.size() && out.list() == kept);
    check(out.guarded());
    check(a.agrees(e));
  }
  {
    std::vector<R> dense(a.gradient.size(), R{9});
    backend.accumulate(a.source(formula, in_place), std::span{dense});
    check(same_bits(dense, e.accumulators));
    check(a.agrees(e));
  }
  check(backend.allocated_bytes() == reserved);
}

template <class T>
arena<T, topsum::decayed_residual_sum<T>> input(pattern what, std::size_t n) {
  arena<T, topsum::decayed_residual_sum<T>> a;
  a.gradient = make<T>(what, n, 1);
  a.before[0] = what == pattern::bell || what == pattern::nonfinite ? make<wide_t<T>>(pattern::bell, n, 2)
                                                                    : std::vector<wide_t<T>>(n);
  return a;
}

template <class T, class I>
checks sweep() {
  checks check;
  for (std::size_t n : any_size) {
    for (pattern what : patterns) {
      auto a = input<T>(what, n);
      for (auto set : instruction_sets()) {
        for (std::size_t slack : {std::size_t{7}, host::default_slack}) {
          host const backend{set, slack};
          for (std::size_t k : {std::size_t{0}, std::size_t{1}, n / 100, n / 30, n / 7, n > 0 ? n - 1 : 0, n}) {
            if (k <= n && (slack == 7 || k == n / 30))
              check_all<T, I>(check, backend, a, topsum::decayed_residual_sum<T>{}, whole(n, k, k), slack == 7);
          }
        }
      }
    }
  }
  return check;
}

}  // namespace

TEST_CASE_TEMPLATE("selections equal sorting, for every input and instruction set", T, float, double, topsum::half,
                   topsum::bfloat16) {
  using I = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  checks const check = sweep<T, I>();
  CHECK(check.made > 1000);
  CHECK(check.failed == 0);
}

TEST_CASE("states that go past the caches are the same") {
  checks check;
  std::size_t const n = (std::size_t{4} << 20) / sizeof(float) + 1003;
  std::vector<piece> const pieces{{0, n / 2 + 5, 300, 300},
                                  {n / 2 + 5, 64 * 900, 3, 3, {64, 9, 1}},
                                  {n / 2 + 5 + 64 * 900, 9000, 7, 7, {1, 9000, 1000}}};
  auto a = input<float>(pattern::nonfinite, n);
  for (auto set : instruction_sets())
    check_all<float, std::uint32_t>(check, host{set}, a, topsum::decayed_residual_sum<float>{}, pieces, false);
  CHECK(check.failed == 0);
}

TEST_CASE("index and value widths mix") {
  checks check;
  auto a = input<float>(pattern::bell, 9001);
  auto b = input<double>(pattern::few_levels, 9001);
  for (auto set : instruction_sets()) {
    check_all<float, std::uint64_t>(check, host{set, 10}, a, topsum::decayed_residual_sum<float>{}, whole(9001, 90, 90),
                                    true);
    check_all<double, std::uint32_t>(check, host{set, 10}, b, topsum::decayed_residual_sum<double>{},
                                     whole(9001, 90, 90), true);
  }
  CHECK(check.failed == 0);
}

TEST_CASE("large pieces are sampled, cut and looked back at without a trace") {
  checks check;
  for (std::size_t n : {std::size_t{70001}, std::size_t{300000}}) {
    for (pattern what : patterns) {
      auto a = input<float>(what, n);
      for (auto set : instruction_sets()) {
        std::size_t const k = n / 100;
        check_all<float, std::uint32_t>(check, host{set, 100}, a, topsum::decayed_residual_sum<float>{}, whole(n, k, k),
                                        true);
      }
      check_all<float, std::uint32_t>(check, host{}, a, topsum::decayed_residual_sum<float>{},
                                      whole(n, n / 1000, n / 1000), true);
    }
  }
  CHECK(check.failed == 0);
}

TEST_CASE("pieces of all sizes, with gaps, are selected each on its own") {
  checks check;
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::size_t const n = 100003;
    auto const pieces = mixed(n, seed);
    for (pattern what : {pattern::bell, pattern::few_levels, pattern::nonfinite, pattern::zeros}) {
      auto a = input<float>(what, n);
      for (auto set : instruction_sets())
        check_all<float, std::uint32_t>(check, host{set, 50}, a, topsum::decayed_residual_sum<float>{}, pieces, true);
    }
  }
  CHECK(check.failed == 0);
}

TEST_CASE("groups of every shape are selected from each on its own") {
  using topsum::grid;
  struct shape {
    std::size_t blocks;
    grid cut;
  };
  shape const shapes[] = {{1, {1, 768 * 9, 768}}, {1, {1, 1000, 64}}, {1, {1, 4097, 4096}}, {1, {1, 30000, 9000}},
                          {1, {1, 50, 50}},       {1, {1, 61, 7}},    {5, {1, 100, 33}},    {7, {64, 9, 1}},
                          {3, {512, 9, 1}},       {9, {3, 49, 1}},    {40, {2, 2, 1}},      {1, {130, 768, 1}},
                          {2, {64, 1000, 64}},    {1, {64, 64, 64}},  {2, {7, 50, 16}},     {3, {13, 5, 4}},
                          {1, {997, 1, 1}},       {3, {33, 31, 31}},  {1, {300, 300, 1}},   {2, {17, 3, 2}}};
  checks check;
  for (shape const& s : shapes) {
    std::size_t const block = s.cut.height * s.cut.width;
    std::size_t const group = s.cut.height * s.cut.run;
    std::size_t const n = s.blocks * block + 150;
    for (std::size_t const k : {std::size_t{0}, std::size_t{1}, group / 100 + 2, group / 9, group}) {
      if (k > group) continue;
      std::vector<piece> const pieces{{3, s.blocks * block, k, k, s.cut}, {n - 140, 100, 5, 5}};
      for (pattern what : {pattern::bell, pattern::few_levels, pattern::nonfinite, pattern::zeros}) {
        auto a = input<float>(what, n);
        for (auto set : instruction_sets())
          check_all<float, std::uint32_t>(check, host{set, 7}, a, topsum::decayed_residual_sum<float>{}, pieces,
                                          what != pattern::bell);
        if (what != pattern::nonfinite) continue;
        auto b = input<double>(what, n);
        arena<float, topsum::plain_gradient<float>> none{a.gradient, {}, {}, {}};
        for (auto set : instruction_sets()) {
          check_all<double, std::uint64_t>(check, host{set}, b, topsum::decayed_residual_sum<double>{}, pieces, true);
          check_all<float, std::uint32_t>(check, host{set}, none, topsum::plain_gradient<float>{}, pieces, true);
        }
      }
    }
  }
  CHECK(check.made > 1000);
  CHECK(check.failed == 0);
}

TEST_CASE("formulas with no state, a decay, and two states") {
  checks check;
  std::size_t const n = 30011;
  auto const pieces = mixed(n, 9);
  for (pattern what : {pattern::bell, pattern::nonfinite}) {
    auto const gradient = make<float>(what, n, 3);
    auto const state = make<float>(pattern::bell, n, 4);
    auto const other = make<float>(pattern::spikes, n, 5);
    for (auto set : instruction_sets()) {
      for (bool in_place : {true, false}) {
        arena<float, topsum::plain_gradient<float>> none{gradient, {}, {}, {}};
        check_all<float, std::uint32_t>(check, host{set}, none, topsum::plain_gradient<float>{}, pieces, in_place);
        arena<float, topsum::decayed_residual_sum<float>> one{gradient, {state}, {}, {}};
        check_all<float, std::uint32_t>(check, host{set}, one, topsum::decayed_residual_sum<float>{0.9F}, pieces,
                                        in_place);
        arena<float, momentum<float>> two{gradient, {state, other}, {}, {}};
        check_all<float, std::uint32_t>(check, host{set}, two, momentum<float>{0.7F}, pieces, in_place);
      }
    }
  }
  CHECK(check.failed == 0);
}

TEST_CASE_TEMPLATE("products are rounded before sums on every path", T, float, double) {
  std::size_t const n = 1000;
  auto const gradient = make<T>(pattern::bell, n, 6);
  auto const state = make<T>(pattern::bell, n, 7);
  T const decay = static_cast<T>(0.3);
  std::vector<T> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    T const volatile product = decay * state[i];
    expected[i] = product + gradient[i];
  }
  for (auto set : instruction_sets()) {
    arena<T, topsum::decayed_residual_sum<T>> a{gradient, {state}, {}, {}};
    std::vector<T> dense(n);
    host{set}.accumulate(a.source(topsum::decayed_residual_sum<T>{decay}, true), std::span{dense});
    CHECK(same_bits(dense, expected));
  }
}

TEST_CASE("accumulating onto the gradient itself") {
  std::size_t const n = 777;
  for (auto set : instruction_sets()) {
    auto a = input<float>(pattern::nonfinite, n);
    auto const e = evaluate<float>(a.gradient, a.before, topsum::decayed_residual_sum<float>{});
    host{set}.accumulate(a.source({}, true), std::span{a.gradient});
    CHECK(same_bits(a.gradient, e.accumulators));
    CHECK(a.agrees(e));
  }
}

TEST_CASE("a guess that was far too high is looked back on, faults and near-overflows included") {
  std::size_t const n = 20000;
  using formula = topsum::decayed_residual_sum<float>;
  for (unsigned every : {0U, 1000U, 11U, 3U}) {  // more faults than are remembered in the end
    std::mt19937 random{every};
    std::normal_distribution<float> bell;
    arena<float, formula> a;
    a.gradient.resize(n);
    a.before[0].resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      a.gradient[i] = bell(random);
      a.before[0][i] = bell(random);
      if (every != 0 && random() % every == 0) a.gradient[i] = std::numeric_limits<float>::infinity();
      if (random() % 500 == 0)
        a.gradient[i] = 2e38F, a.before[0][i] = random() % 2 == 0 ? 1e38F : 3e38F;  // fits, overflows
    }
    auto const e = evaluate<float>(a.gradient, a.before, formula{});
    for (std::size_t k : {std::size_t{1}, std::size_t{200}, n - 5}) {
      std::vector<std::size_t> at(n);
      for (std::size_t i = 0; i < n; ++i) at[i] = i;
      list_of<float, std::uint32_t> expected;
      append_first(at, e.accumulators, k, expected);
      for (auto set : instruction_sets()) {
        for (float guess : {3e38F, 5.0F, 1.0F}) {
          auto const from = a.source({}, true);
          auto scratch = std::make_unique<topsum::detail::fixed_scratch>();
          using candidates = topsum::detail::candidate_list<float, std::uint32_t>;
          std::size_t const capacity = std::min(n, 3 * k + 50);
          std::vector<std::uint32_t> indices(capacity + candidates::overhang);
          std::vector<float> values(capacity + candidates::overhang);
          candidates list{indices.data(), values.data(), capacity, k, topsum::magnitude(guess), &scratch->radix, set};
          topsum::detail::top_k_sink<host, float, formula, std::uint32_t> sink{from, list, scratch->top_k, 0};
          topsum::detail::run_pass(set, from, 0, n, sink);
          if (list.used < k) sink.look_back(n);
          room<float, std::uint32_t> out{k};
          list.extract(k, out.indices.data(), out.values.data());
          out.count = k;
          CHECK(out.list() == expected);
          CHECK(out.guarded());
          CHECK(a.agrees(e));
        }
      }
    }
  }
}

TEST_CASE("a threshold that is not finite selects nothing") {
  std::vector<piece> const pieces = whole(100, 5, 5);
  for (float t : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto a = input<float>(pattern::nonfinite, 100);
    room<float, std::uint32_t> out{5};
    std::vector<std::size_t> counts(1, 9);
    host{}.select_at_least(a.source({}, true), std::span{pieces}, std::span{&t, 1}, out.view(), std::span{counts});
    CHECK(out.count == 0);
    CHECK(counts[0] == 0);
  }
}

TEST_CASE("scratch is bounded by what may be kept, and by the piece") {
  std::vector<piece> const pieces = whole(std::size_t{1} << 30, 1000, 1000);
  host big;
  big.reserve_selection<float, std::uint32_t>(std::span{pieces});
  CHECK(big.allocated_bytes() < 2'000'000);
  host copy{big};
  CHECK(copy.allocated_bytes() == 0);
}

TEST_CASE("an instruction set that the CPU lacks is refused in a sentence") {
  CHECK_NOTHROW(host{}.validate());
  for (auto set : {host::instruction_set::portable, host::instruction_set::avx2, host::instruction_set::avx512}) {
    if (topsum::detail::cpu_has(set)) {
      CHECK_NOTHROW(host{set}.validate());
    } else {
      CHECK_THROWS_AS(host{set}.validate(), topsum::error);
    }
  }
}

TEST_CASE("quotas are selected from each owner's coordinates on their own") {
  using topsum::interleaving;
  checks check;
  auto const check_quotas = [&check]<class T, class I, class Formula>(arena<T, Formula>& a,
                                                                      topsum::quotas const& wanted, host backend,
                                                                      Formula formula, I, bool in_place) {
    using R = wide_t<T>;
    auto const e = evaluate<T, Formula>(a.gradient, a.before, formula);
    list_of<R, I> expected;
    for (std::size_t r = 0; r < wanted.where.owners; ++r) {
      std::vector<std::size_t> at;
      for (std::size_t p = 0; p < wanted.where.size_of(r); ++p) at.push_back(wanted.where.position_of(r, p));
      append_first(at, e.accumulators, wanted.of(r), expected);
    }
    in_order(expected);
    backend.template reserve_quotas<R, I>(wanted);
    std::size_t const reserved = backend.allocated_bytes();
    room<R, I> out{wanted.total()};
    backend.select_quotas(a.source(formula, in_place), wanted, out.view());
    check(out.count == expected.indices.size() && out.list() == expected);
    check(out.guarded());
    check(a.agrees(e));
    check(backend.allocated_bytes() == reserved);
  };
  for (std::size_t const n : {0U, 1U, 2U, 63U, 64U, 65U, 997U, 5003U, 70001U, 300000U}) {
    for (pattern what : patterns) {
      auto a = input<float>(what, n);
      for (auto set : instruction_sets()) {
        for (std::size_t const owners : {1U, 2U, 3U, 8U}) {
          bool const large = n > 6000;
          if (large && owners != 3 && !(owners == 8 && what == pattern::nonfinite)) continue;
          for (std::size_t const block : {std::size_t{1}, std::size_t{32}, n / owners + 1}) {
            interleaving const where{n, owners, block};
            for (std::size_t const each : {std::size_t{0}, std::size_t{1}, n / 100 / owners + 1, n / owners / 5, n}) {
              if (large && each != n / 100 / owners + 1) continue;
              check_quotas(a, {where, std::min(each, where.largest())}, host{set, large ? 65536U : 7U},
                           topsum::decayed_residual_sum<float>{}, std::uint32_t{}, what != pattern::bell);
            }
          }
        }
      }
    }
  }
  auto b = input<double>(pattern::few_levels, 9001);
  check_quotas(b, {{9001, 3, 8}, 40}, host{}, topsum::decayed_residual_sum<double>{}, std::uint64_t{}, true);
  auto c = input<topsum::half>(pattern::bell, 9001);
  arena<topsum::half, topsum::plain_gradient<topsum::half>> none{c.gradient, {}, {}, {}};
  check_quotas(none, {{9001, 5, 32}, 40}, host{}, topsum::plain_gradient<topsum::half>{}, std::uint32_t{}, true);
  // One owner has all the large elements: the guess is too high for the others, few faults or more than are remembered.
  std::size_t const n = 300000;
  interleaving const where{n, 4, 32};
  for (std::size_t const every : {0U, 1001U, 101U}) {
    auto d = input<float>(pattern::bell, n);
    for (std::size_t i = 0; i < n; ++i) {
      d.gradient[i] *= where.owner_of(i) == 2 ? 1000.0F : 1.0F;
      if (every != 0 && i % every == 0) {
        d.gradient[i] = std::numeric_limits<float>::infinity();
        d.before[0][i] = 50.0F;  // stays, and is not selected
      }
    }
    for (std::size_t const each : {std::size_t{10}, std::size_t{700}}) {
      check_quotas(d, {where, each}, host{}, topsum::decayed_residual_sum<float>{}, std::uint32_t{}, true);
    }
  }
  CHECK(check.made > 1000);
  CHECK(check.failed == 0);
}

TEST_CASE("an owner is found by products as by divisions") {
  std::mt19937_64 random{5};
  for (std::size_t const owners : {1U, 2U, 3U, 7U, 64U, 1000U}) {
    for (std::size_t const block : {1U, 3U, 32U, 1000U}) {
      topsum::interleaving const where{std::size_t{1} << 45, owners, block};
      topsum::detail::owner_finder const found{where};
      bool equal = true;
      for (std::size_t i = 0; i < 5000; ++i) {
        std::size_t const edge = random() % (std::size_t{1} << 45) / (block * owners) * block * owners;
        for (std::size_t const position : {i, edge, edge == 0 ? 0 : edge - 1, edge + random() % (block * owners)})
          equal = equal && found(position) == where.owner_of(position);
      }
      CHECK(equal);
    }
  }
}
