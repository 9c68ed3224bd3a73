// SPDX-License-Identifier: BSL-1.0
// The host's verbs over lists of entries against maps and sorting.
#include <doctest/doctest.h>

#include <map>

#include "oracle.hpp"

using namespace test;

namespace {

// A list of `size` entries at random increasing indices below `extent`.
template <class R, class I>
room<R, I> random_list(std::size_t size, std::size_t extent, unsigned seed, pattern what = pattern::bell) {
  std::mt19937 random{seed};
  std::vector<I> all(extent);
  for (std::size_t i = 0; i < extent; ++i) all[i] = static_cast<I>(i);
  std::shuffle(all.begin(), all.end(), random);
  std::sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
  room<R, I> list{size};
  auto const values = make<R>(what, size, seed + 1);
  std::copy(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size), list.indices.begin());
  std::copy(values.begin(), values.end(), list.values.begin());
  list.count = size;
  return list;
}

template <class R, class I>
list_of<R, I> first_of(list_of<R, I> const& list, std::size_t k) {
  std::vector<std::size_t> at(list.values.size());
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = i;
  list_of<R, std::size_t> places;
  append_first(at, list.values, k, places);
  list_of<R, I> out;
  for (std::size_t i : places.indices) {
    out.indices.push_back(list.indices[i]);
    out.values.push_back(list.values[i]);
  }
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("merge_sum is the union, summed in the order of the lists", R, float, double) {
  using I = std::conditional_t<sizeof(R) == 4, std::uint32_t, std::uint64_t>;
  for (std::size_t lists : {0U, 1U, 2U, 3U, 5U, 8U, 33U}) {
    for (std::size_t extent : {40U, 5000U, 4000000U}) {  // the last is sparse: lists are compared, not scattered
      std::vector<room<R, I>> inputs;
      std::map<I, R> sums;
      for (std::size_t l = 0; l < lists; ++l) {
        std::size_t const size = l % 4 == 1 ? 0 : std::min<std::size_t>(extent / 3, 300) + l;
        inputs.push_back(random_list<R, I>(std::min(size, extent), extent, static_cast<unsigned>(l)));
        auto const list = inputs.back().list();
        for (std::size_t i = 0; i < list.indices.size(); ++i) {
          auto const [at, fresh] = sums.try_emplace(list.indices[i], list.values[i]);
          if (!fresh) at->second += list.values[i];
        }
      }
      std::vector<topsum::entries_view<host, R, I>> views;
      for (auto& one : inputs) views.push_back(one.view());
      list_of<R, I> expected;
      for (auto const& [index, sum] : sums) {
        expected.indices.push_back(index);
        expected.values.push_back(sum);
      }
      host backend;
      backend.reserve_lists<R, I>(lists, 0);
      std::size_t const reserved = backend.allocated_bytes();
      room<R, I> out{sums.size()};
      backend.merge_sum(std::span{views}, out.view());
      CHECK(out.list() == expected);
      CHECK(out.guarded());
      CHECK(backend.allocated_bytes() == reserved);
    }
  }
}

TEST_CASE("merging huge indices and indices at the ends") {
  room<float, std::uint64_t> a{2};
  room<float, std::uint64_t> b{2};
  constexpr std::uint64_t last = ~std::uint64_t{0};
  a.indices[0] = 0, a.indices[1] = last, b.indices[0] = std::uint64_t{1} << 40, b.indices[1] = last;
  a.values[0] = 1, a.values[1] = 2, b.values[0] = 3, b.values[1] = 4;
  a.count = b.count = 2;
  for (int times : {2, 3}) {
    std::vector<topsum::entries_view<host, float, std::uint64_t>> views{a.view(), b.view(), b.view()};
    views.resize(static_cast<std::size_t>(times));
    room<float, std::uint64_t> out{3};
    host{}.merge_sum(std::span{views}, out.view());
    CHECK(out.list() == list_of<float, std::uint64_t>{
                            {0, std::uint64_t{1} << 40, last},
                            {1, static_cast<float>(times == 2 ? 3 : 6), static_cast<float>(times == 2 ? 6 : 10)}});
  }
}

TEST_CASE("merging dense lists whose last index is the largest there is") {
  room<float, std::uint32_t> a{2};
  room<float, std::uint32_t> b{2};
  a.indices[0] = b.indices[0] = ~std::uint32_t{0} - 1, a.indices[1] = b.indices[1] = ~std::uint32_t{0};
  a.values[0] = 1, a.values[1] = 2, b.values[0] = 3, b.values[1] = 4;
  a.count = b.count = 2;
  std::vector<topsum::entries_view<host, float, std::uint32_t>> views{a.view(), b.view()};
  room<float, std::uint32_t> out{2};
  host{}.merge_sum(std::span{views}, out.view());
  CHECK(out.list() == list_of<float, std::uint32_t>{{~std::uint32_t{0} - 1, ~std::uint32_t{0}}, {4, 6}});
}

TEST_CASE_TEMPLATE("top_of keeps the first by magnitude, in place too, on every instruction set", R, float, double) {
  using I = std::conditional_t<sizeof(R) == 4, std::uint32_t, std::uint64_t>;
  for (pattern what : patterns) {
    if (what == pattern::nonfinite || what == pattern::all_bad) continue;
    for (std::size_t size : {0U, 1U, 15U, 64U, 1000U, 1025U, 1099U, 6007U}) {
      auto const list = random_list<R, I>(size, size * 2, 3, what);
      for (std::size_t k :
           {std::size_t{0}, std::size_t{1}, size / 10, size / 2, size > 0 ? size - 1 : 0, size, size + 3}) {
        auto const expected = first_of(list.list(), k);
        for (auto set : instruction_sets()) {
          host backend{set};
          backend.reserve_lists<R, I>(0, size);
          auto from = list;
          room<R, I> out{std::min(k, size)};
          backend.top_of(from.view(), k, out.view());
          CHECK(out.list() == expected);
          CHECK(out.guarded());
          backend.top_of(from.view(), k, from.view());
          CHECK(from.list() == expected);
        }
      }
    }
  }
}

TEST_CASE("intersect keeps a's values") {
  auto a = random_list<float, std::uint32_t>(300, 1000, 1);
  auto b = random_list<float, std::uint32_t>(500, 1000, 2);
  list_of<float, std::uint32_t> expected;
  auto const in_b = b.list();
  for (std::size_t i = 0; i < a.count; ++i) {
    if (!std::binary_search(in_b.indices.begin(), in_b.indices.end(), a.indices[i])) continue;
    expected.indices.push_back(a.indices[i]);
    expected.values.push_back(a.values[i]);
  }
  host backend;
  room<float, std::uint32_t> out{300};
  backend.intersect(a.view(), b.view(), out.view());
  CHECK(out.list() == expected);
  backend.intersect(a.view(), b.view(), a.view());
  CHECK(a.list() == expected);
  auto none = random_list<float, std::uint32_t>(0, 10, 2);
  backend.intersect(b.view(), none.view(), out.view());
  CHECK(out.count == 0);
}

TEST_CASE("keep_at_least and count_at_least tell larger from equal") {
  auto list = random_list<float, std::uint32_t>(1000, 5000, 4, pattern::few_levels);  // values -2 .. 2
  host backend;
  std::size_t above = 0;
  std::size_t equal = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    above += std::abs(list.values[i]) == 2.0F ? 1U : 0U;
    equal += std::abs(list.values[i]) == 1.0F ? 1U : 0U;
  }
  std::array<std::size_t, 2> counts{};
  backend.count_at_least(list.view(), topsum::magnitude(1.0F), std::span<std::size_t>{counts});
  CHECK(counts == std::array{above, equal});
  for (std::size_t ties : {std::size_t{0}, std::size_t{1}, equal / 2, equal, equal + 5}) {
    room<float, std::uint32_t> out{1000};
    backend.keep_at_least(list.view(), topsum::magnitude(1.0F), ties, out.view());
    CHECK(out.list() == first_of(list.list(), above + std::min(ties, equal)));
  }
  backend.keep_at_least(list.view(), topsum::magnitude(1.0F), 2, list.view());
  CHECK(list.count == above + 2);
}

TEST_CASE_TEMPLATE("rounds of histograms find the k-th magnitude", R, float, double) {
  using bits = topsum::bits_t<R>;
  auto list = random_list<R, std::uint32_t>(3000, 6000, 5);
  host backend;
  for (std::size_t k : {1U, 77U, 1500U, 3000U}) {
    bits prefix = 0;
    std::size_t rank = k;
    int known = 0;
    while (known < topsum::magnitude_bits<R>) {
      int const width = std::min(11, topsum::magnitude_bits<R> - known);
      std::vector<std::uint32_t> bins(std::size_t{1} << width, 99);
      backend.histogram(list.view(), prefix, known, width, std::span{bins});
      std::size_t bin = bins.size() - 1;
      while (rank > bins[bin]) rank -= bins[bin--];
      known += width;
      prefix = static_cast<bits>(prefix |
                                 static_cast<bits>(static_cast<bits>(bin) << (topsum::magnitude_bits<R> - known)));
    }
    auto magnitudes = list.list().values;
    std::sort(magnitudes.begin(), magnitudes.end(), [](R a, R b) { return std::abs(a) > std::abs(b); });
    CHECK(prefix == topsum::magnitude(magnitudes[k - 1]));
  }
}

TEST_CASE("lower_bounds counts indices below each bound") {
  auto list = random_list<float, std::uint32_t>(100, 1000, 6);
  std::vector<std::uint64_t> const bounds{0, 1, 500, 500, 999, 1000, std::uint64_t{1} << 33, 3};
  std::vector<std::size_t> out(bounds.size());
  host{}.lower_bounds(list.view(), std::span{bounds}, std::span{out});
  for (std::size_t j = 0; j < bounds.size(); ++j) {
    auto const below = std::count_if(list.indices.begin(), list.indices.begin() + 100,
                                     [&](std::uint32_t i) { return i < bounds[j]; });
    CHECK(out[j] == static_cast<std::size_t>(below));
  }
}

TEST_CASE("cuts divide the entries evenly, and the range when there are none") {
  host backend;
  for (std::size_t size : {0U, 1U, 3U, 100U}) {
    auto list = random_list<float, std::uint32_t>(size, 1000, 7);
    for (std::size_t parts : {1U, 2U, 7U, 200U}) {
      std::vector<std::uint64_t> out(parts - 1, 77);
      backend.cuts(list.view(), parts, 1000, std::span{out});
      for (std::size_t i = 1; i < parts; ++i)
        CHECK(out[i - 1] == (size == 0 ? i * 1000 / parts : list.indices[i * size / parts]));
    }
  }
  auto none = random_list<float, std::uint64_t>(0, 10, 7);
  std::vector<std::uint64_t> out(2);
  backend.cuts(none.view(), 3, ~std::size_t{0}, std::span{out});
  CHECK(out == std::vector<std::uint64_t>{6148914691236517205ULL, 12297829382473034410ULL});  // no overflow
}

TEST_CASE("check empties a list that breaks a rule, and only such a list") {
  host backend;
  auto const good = random_list<float, std::uint32_t>(50, 1000, 8);
  auto const verdict = [&](auto change, std::size_t begin, std::size_t end) {
    auto list = good;
    change(list);
    std::size_t const before = list.count;
    std::uint32_t fault = 0;
    backend.check(list.view(), begin, end, std::span{&fault, 1});
    CHECK(list.count == (fault != 0 ? 0 : before));
    return fault;
  };
  auto const as_is = [](auto&) {};
  CHECK(verdict(as_is, 0, 1000) == 0);
  CHECK(verdict(as_is, good.indices[0], good.indices[49] + 1) == 0);
  CHECK(verdict(as_is, good.indices[0] + 1, 1000) == 1);
  CHECK(verdict(as_is, 0, good.indices[49]) == 1);
  CHECK(verdict([](auto& l) { l.indices[20] = l.indices[21]; }, 0, 1000) == 1);
  CHECK(verdict([](auto& l) { std::swap(l.indices[20], l.indices[21]); }, 0, 1000) == 1);
  CHECK(verdict([](auto& l) { l.indices[20] = 0xffffffffU; }, 0, 1000) == 1);
  CHECK(verdict([](auto& l) { l.count = 51; }, 0, 1000) == 1);
  CHECK(verdict([](auto& l) { l.count = ~std::size_t{0}; }, 0, 1000) == 1);
  CHECK(verdict([](auto& l) { l.count = 0; }, 5, 5) == 0);
}

TEST_CASE("a fault that is there already stays") {
  auto list = random_list<float, std::uint32_t>(5, 10, 8);
  std::uint32_t fault = 1;
  host{}.check(list.view(), 0, 10, std::span{&fault, 1});
  CHECK(fault == 1);
  CHECK(list.count == 5);
}

namespace {

// Pieces with gaps: two whole ones, rows, columns of a matrix, an empty one.
std::vector<topsum::piece> const grouped{
    {3, 40, 6, 6}, {50, 60, 2, 2, {1, 60, 20}}, {120, 0, 0, 0}, {120, 84, 3, 3, {12, 7, 1}}, {210, 30, 4, 4}};
std::vector<topsum::piece> const wholes{
    {3, 40, 6, 6}, {50, 60, 1, 2}, {120, 0, 0, 0}, {130, 70, 0, 3}, {210, 30, 99, 4}};

// Entries' places in the list, by group.
template <class R, class I>
std::vector<std::vector<std::size_t>> by_group(list_of<R, I> const& list, std::vector<topsum::piece> const& pieces) {
  std::vector<std::vector<std::size_t>> places;
  for (auto const& p : pieces) {
    for (std::size_t g = 0; g < topsum::group_count(p); ++g) {
      auto const where = topsum::group_at(p, g);
      auto& here = places.emplace_back();
      for (std::size_t i = 0; i < where.size(); ++i) {
        auto const at = std::find(list.indices.begin(), list.indices.end(), where.position(i));
        if (at != list.indices.end()) here.push_back(static_cast<std::size_t>(at - list.indices.begin()));
      }
    }
  }
  return places;
}

}  // namespace

TEST_CASE_TEMPLATE("kth_of finds each piece's k-th magnitude in a list", R, float, double) {
  for (pattern const what : {pattern::bell, pattern::equal, pattern::zeros}) {
    for (std::size_t const size : {0U, 1U, 30U, 200U, 250U}) {
      auto list = random_list<R, std::uint32_t>(size, 250, 4, what);
      auto const groups = by_group(list.list(), wholes);
      std::vector<R> got(wholes.size(), R{-1});
      host{}.kth_of(list.view(), wholes, topsum::host_span<R>{got});
      for (std::size_t p = 0; p < wholes.size(); ++p) {
        std::vector<R> magnitudes;
        for (std::size_t e : groups[p]) magnitudes.push_back(std::abs(list.values[e]));
        std::sort(magnitudes.rbegin(), magnitudes.rend());
        std::size_t const k = std::min(wholes[p].count, magnitudes.size());
        CHECK(got[p] == (k == 0 ? R{0} : magnitudes[k - 1]));
      }
    }
  }
}

TEST_CASE_TEMPLATE("drop_last takes the last of equals from the groups that are marked, in place too", R, float,
                   double) {
  for (pattern const what : {pattern::bell, pattern::equal, pattern::zeros}) {
    for (std::size_t const size : {0U, 1U, 60U, 250U}) {
      for (bool const in_place : {false, true}) {
        auto list = random_list<R, std::uint32_t>(size, 250, 9, what);
        auto const before = list.list();
        auto const groups = by_group(before, grouped);
        std::vector<R> kth(groups.size());
        std::vector<R> drop(groups.size());
        std::vector<bool> keep(size, false);
        for (std::size_t g = 0; g < groups.size(); ++g) {
          drop[g] = g % 3 == 0 ? R{0} : R{1};
          std::ptrdiff_t loses = -1;
          for (std::size_t e : groups[g]) {
            keep[e] = true;
            if (kth[g] == 0 || std::abs(before.values[e]) < kth[g]) kth[g] = std::abs(before.values[e]);
          }
          for (std::size_t e : groups[g])
            loses = std::abs(before.values[e]) == kth[g] ? static_cast<std::ptrdiff_t>(e) : loses;
          if (drop[g] != 0 && loses >= 0) keep[static_cast<std::size_t>(loses)] = false;
        }
        list_of<R, std::uint32_t> expected;
        for (std::size_t e = 0; e < size; ++e) {
          if (!keep[e]) continue;
          expected.indices.push_back(before.indices[e]);
          expected.values.push_back(before.values[e]);
        }
        room<R, std::uint32_t> other{size};
        auto& target = in_place ? list : other;
        host{}.drop_last(list.view(), grouped, topsum::host_span<R const>{kth}, topsum::host_span<R>{drop},
                         target.view());
        CHECK(target.list().indices == expected.indices);
        CHECK(target.list().values == expected.values);
      }
    }
  }
}

TEST_CASE("count_groups counts groups with entries") {
  for (std::size_t const size : {0U, 1U, 5U, 60U, 250U}) {
    auto list = random_list<float, std::uint32_t>(size, 250, 2);
    auto const groups = by_group(list.list(), grouped);
    std::vector<std::uint32_t> marks(groups.size(), 7);
    std::vector<std::size_t> count(1);
    host{}.count_groups(list.view(), grouped, topsum::host_span<std::uint32_t>{marks},
                        topsum::host_span<std::size_t>{count});
    CHECK(count[0] == static_cast<std::size_t>(
                          std::count_if(groups.begin(), groups.end(), [](auto const& g) { return !g.empty(); })));
  }
}

TEST_CASE("difference keeps what the other list lacks, in place too") {
  for (std::size_t const size : {0U, 1U, 30U, 90U}) {
    for (bool const in_place : {false, true}) {
      auto a = random_list<float, std::uint32_t>(size, 100, 3);
      auto b = random_list<float, std::uint32_t>(40, 100, 8);
      list_of<float, std::uint32_t> expected;
      for (std::size_t i = 0; i < size; ++i) {
        if (std::find(b.indices.begin(), b.indices.begin() + 40, a.indices[i]) != b.indices.begin() + 40) continue;
        expected.indices.push_back(a.indices[i]);
        expected.values.push_back(a.values[i]);
      }
      room<float, std::uint32_t> other{size};
      auto& target = in_place ? a : other;
      host{}.difference(a.view(), b.view(), target.view());
      CHECK(target.list() == expected);
    }
  }
}

TEST_CASE("look_up reads what lies at a list's indices, and zero where that is not finite") {
  std::vector<float> dense(50);
  for (std::size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<float>(i) - 20;
  dense[7] = std::numeric_limits<float>::quiet_NaN();
  dense[9] = -std::numeric_limits<float>::infinity();
  auto list = random_list<float, std::uint32_t>(40, 50, 6);
  host{}.look_up(topsum::host_span<float const>{dense}, list.view());
  for (std::size_t e = 0; e < 40; ++e) {
    std::size_t const i = list.indices[e];
    CHECK(list.values[e] == (i == 7 || i == 9 ? 0.0F : dense[i]));
  }
}

TEST_CASE("deal sorts by owner and place, and positions turns places back") {
  for (std::size_t const size : {0U, 1U, 90U, 250U}) {
    for (std::size_t const owners : {1U, 3U, 8U}) {
      topsum::interleaving const where{250, owners, 4};
      auto list = random_list<float, std::uint32_t>(size, 250, 5);
      room<float, std::uint32_t> dealt{size};
      std::vector<std::size_t> ends(owners);
      host backend;
      backend.deal(list.view(), where, dealt.view(), topsum::host_span<std::size_t>{ends});
      std::size_t begin = 0;
      list_of<float, std::uint32_t> expected;
      for (std::size_t r = 0; r < owners; ++r) {
        list_of<float, std::uint32_t> mine;
        for (std::size_t i = 0; i < size; ++i) {
          if (where.owner_of(list.indices[i]) != r) continue;
          mine.indices.push_back(list.indices[i]);
          mine.values.push_back(list.values[i]);
        }
        REQUIRE(ends[r] - begin == mine.indices.size());
        auto const all = dealt.view();
        std::size_t count = mine.indices.size();
        topsum::entries_view<host, float, std::uint32_t> const part{all.indices.subspan(begin, count),
                                                                    all.values.subspan(begin, count),
                                                                    topsum::host_span<std::size_t>{&count, 1}};
        CHECK(std::is_sorted(part.indices.begin(), part.indices.end()));
        backend.positions(part, where, r);
        CHECK(std::equal(part.indices.begin(), part.indices.end(), mine.indices.begin()));
        CHECK(std::equal(part.values.begin(), part.values.end(), mine.values.begin()));
        begin = ends[r];
      }
    }
  }
}

TEST_CASE("pad adds zeros at the smallest indices that a list lacks") {
  for (std::size_t const extent : {1U, 5U, 20U, 100U}) {
    for (std::size_t const size : {std::size_t{0}, std::size_t{1}, extent / 2, extent}) {
      for (std::size_t const count : {std::size_t{0}, size, size + 1, (size + extent) / 2, extent}) {
        if (size > extent || count > extent) continue;
        auto const before = random_list<float, std::uint32_t>(size, extent, static_cast<unsigned>(count)).list();
        std::map<std::uint32_t, float> expected;
        for (std::size_t i = 0; i < size; ++i) expected[before.indices[i]] = before.values[i];
        for (std::uint32_t i = 0; expected.size() < count; ++i) expected.try_emplace(i, 0.0F);
        room<float, std::uint32_t> list{std::max(count, size)};
        std::copy(before.indices.begin(), before.indices.end(), list.indices.begin());
        std::copy(before.values.begin(), before.values.end(), list.values.begin());
        list.count = size;
        host{}.pad(list.view(), count);
        auto const got = list.list();
        REQUIRE(got.indices.size() == expected.size());
        std::size_t i = 0;
        for (auto const& [index, value] : expected) {
          CHECK(got.indices[i] == index);
          CHECK(got.values[i] == value);
          ++i;
        }
      }
    }
  }
}

TEST_CASE("scattered updates and divide") {
  host backend;
  for (std::size_t size : {0U, 1U, 31U, 32U, 33U, 500U}) {
    auto list = random_list<float, std::uint32_t>(size, 1000, 9);
    auto const start = make<float>(pattern::bell, 1000, 10);
    auto added = start;
    auto subtracted = start;
    auto assigned = start;
    auto cleared = start;
    backend.add(list.view(), std::span{added});
    backend.subtract(list.view(), std::span{subtracted});
    backend.assign(list.view(), std::span{assigned});
    backend.clear(list.view(), std::span{cleared});
    auto expected = std::array{start, start, start, start};
    for (std::size_t i = 0; i < size; ++i) {
      expected[0][list.indices[i]] += list.values[i];
      expected[1][list.indices[i]] -= list.values[i];
      expected[2][list.indices[i]] = list.values[i];
      expected[3][list.indices[i]] = 0.0F;
    }
    CHECK(same_bits(added, expected[0]));
    CHECK(same_bits(subtracted, expected[1]));
    CHECK(same_bits(assigned, expected[2]));
    CHECK(same_bits(cleared, expected[3]));
    auto values = list.values;
    for (std::size_t i = 0; i < size; ++i) values[i] /= 3.0F;
    backend.divide(list.view(), 3.0F);
    CHECK(same_bits(list.values, values));
    CHECK(list.guarded());
  }
}

TEST_CASE("memory verbs move what they say") {
  host backend;
  auto memory = backend.allocate<float>(100);
  CHECK(backend.allocated_bytes() == 400);
  auto const view = memory.view();
  auto const values = make<float>(pattern::bell, 100, 11);
  backend.fill(view, 3.0F);
  CHECK(backend.read(view.subspan(99, 1)) == 3.0F);
  backend.write(std::span{values}, view);
  std::vector<float> back(100);
  backend.read(view, std::span{back});
  CHECK(same_bits(back, values));
  std::vector<std::byte> bytes(403);
  backend.pack(view, std::span{bytes});
  backend.fill(view, 0.0F);
  backend.unpack(std::span<std::byte const>{bytes}, view);
  backend.copy(view, std::span{back});
  CHECK(same_bits(back, values));
  backend.copy(view.subspan(0, 99), view.subspan(1, 99));  // overlapping
  CHECK(view[1] == values[0]);
  CHECK(view[99] == values[98]);
  std::vector<double> sums(100, 1.0);
  backend.for_each(
      99, [](std::size_t i, double& sum, float x) { sum += static_cast<double>(x) * static_cast<double>(i); },
      std::span{sums}, std::span{back});
  CHECK(sums[98] == 1.0 + static_cast<double>(back[98]) * 98.0);
  CHECK(sums[99] == 1.0);
  backend.fill(std::span<float>{}, 1.0F);
  backend.copy(std::span<float>{}, std::span<float>{});
  backend.wait();
}

TEST_CASE("for_each rounds products before sums") {
  std::size_t const n = 200;
  auto const a = make<float>(pattern::bell, n, 12);
  auto const b = make<float>(pattern::bell, n, 13);
  std::vector<float> out(n);
  host{}.for_each(
      n, [](std::size_t, float& to, float x, float y) { to = topsum::multiply_then_add(0.3F, x, y); }, std::span{out},
      std::span{a}, std::span{b});
  for (std::size_t i = 0; i < n; ++i) {
    float const volatile product = 0.3F * a[i];
    CHECK(out[i] == product + b[i]);
  }
}
