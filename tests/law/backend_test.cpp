// SPDX-License-Identifier: BSL-1.0
// Laws of a backend, on the host and on an archetype whose memory the host cannot touch and whose verbs run when waited for.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/core/half.hpp>

#include "support/archetype_backend.hpp"

using test::archetype_backend;
using test::archetype_span;
using topsum::host;
using topsum::piece;

static_assert(topsum::backend<host>);
static_assert(topsum::backend<archetype_backend>);
static_assert(topsum::selecting_backend<host, double, std::uint64_t>);
static_assert(topsum::selecting_backend<archetype_backend, double, std::uint64_t>);
static_assert(topsum::list_backend<host, double, std::uint64_t>);
static_assert(topsum::list_backend<archetype_backend, double, std::uint64_t>);
static_assert(topsum::list_backend<archetype_backend, float, std::uint32_t, topsum::half>);
static_assert(topsum::selecting_backend<archetype_backend, topsum::half>);

namespace {

template <class S>
concept touchable = requires(S s) { s[0]; } || requires(S s) { s.data(); } || requires(S s) { s.begin(); } ||
                    requires(S s) { *s; } || std::convertible_to<S, std::span<float const>> || std::ranges::range<S>;
static_assert(touchable<topsum::host_span<float>>);
static_assert(!touchable<archetype_span<float>>);
static_assert(!touchable<archetype_span<float const>>);
static_assert(std::convertible_to<archetype_span<float>, archetype_span<float const>>);
static_assert(!std::convertible_to<archetype_span<float const>, archetype_span<float>>);
static_assert(!std::constructible_from<archetype_span<float>, std::span<float>>);

// Everything that one run of the verbs leaves behind.
struct outcome {
  std::vector<float> residual;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::vector<std::size_t> numbers;
  std::vector<double> sums;
  friend bool operator==(outcome const&, outcome const&) = default;
};

template <class B>
class runner {
 public:
  explicit runner(B& backend) : b{backend} {}

  outcome operator()() {
    constexpr std::size_t n = 10007;
    std::vector<float> gradient(n);
    for (std::size_t i = 0; i < n; ++i)
      gradient[i] = std::sin(static_cast<float>(i * i % 1013)) * static_cast<float>(i % 17);
    gradient[n / 2] = std::nanf("");
    std::vector<piece> const pieces{{0, 3000, 30, 30}, {3000, 0, 0, 0}, {3100, 6000, 60, 60}};
    std::span<piece const> const view{pieces};

    auto g = b.template allocate<float>(n);
    auto r = b.template allocate<float>(n);
    auto kth = b.template allocate<float>(3);
    auto counts = b.template allocate<std::size_t>(3);
    auto fault = b.template allocate<topsum::nonfinite_record>(1);
    auto bad = b.template allocate<std::uint32_t>(1);
    topsum::entries<B, float, std::uint32_t> first{b, 90};
    topsum::entries<B, float, std::uint32_t> second{b, 90};
    topsum::entries<B, float, std::uint32_t> both{b, 180};
    b.template reserve_selection<float, std::uint32_t>(view);
    b.template reserve_lists<float, std::uint32_t>(2, 180);

    b.write(std::span<float const>{gradient}, g.view());
    gradient.assign(n, 0.0F);  // a write has taken its values
    b.fill(r.view(), 1.0F);
    b.fill(fault.view(), topsum::nonfinite_record{});
    b.fill(bad.view(), 0U);
    using formula = topsum::decayed_residual_sum<float>;
    topsum::source<B, float, formula> const from{g.view(), {r.view()}, {r.view()}, formula{0.75F}, fault.view()};
    b.select_top_k(from, view, first.view(), kth.view());
    b.subtract(first.view(), r.view());
    b.select_at_least(from, view, kth.view(), second.view(), counts.view());
    std::array const lists{first.view(), second.view()};
    b.merge_sum(lists, both.view());
    b.check(both.view(), 0, n, bad.view());
    b.top_of(both.view(), 50, second.view());
    b.intersect(both.view(), second.view(), first.view());
    b.divide(first.view(), 2.0F);
    b.add(first.view(), r.view());
    auto sums = b.template allocate<topsum::moments>(3);
    b.moments(from, view, kth.view(), sums.view());
    b.sample_kth(from, view, topsum::sampling{10'000'000, 5}, kth.view());
    b.select_at(from, first.view());
    b.kth_of(both.view(), view, r.view());
    auto groups = b.template allocate<std::size_t>(1);
    auto marks = b.template allocate<std::uint32_t>(3);
    b.count_groups(both.view(), view, marks.view(), groups.view());
    auto drop = b.template allocate<float>(3);
    b.fill(drop.view(), 1.0F);
    b.drop_last(second.view(), view, r.view(), drop.view(), second.view());

    outcome o;
    o.residual = host_copy(r.view());
    o.indices = host_copy(first.view().indices.subspan(0, 50));
    o.values = host_copy(first.view().values.subspan(0, 50));
    o.numbers = host_copy(counts.view());
    o.numbers.push_back(read_one(both.view().count));
    o.numbers.push_back(read_one(first.view().count));
    o.numbers.push_back(static_cast<std::size_t>(b.read(fault.view()).count));
    o.numbers.push_back(static_cast<std::size_t>(b.read(fault.view()).first));
    for (topsum::moments const& m : host_copy(sums.view())) {
      o.numbers.push_back(m.count);
      o.sums.insert(o.sums.end(), {m.sum, m.sum_magnitude, m.sum_squares, m.mantissa, m.largest});
    }
    for (float estimate : host_copy(kth.view())) o.values.push_back(estimate);
    o.numbers.push_back(read_one(groups.view()));
    o.numbers.push_back(read_one(second.view().count));
    o.numbers.push_back(b.read(bad.view()));
    return o;
  }

 private:
  template <class Span>
  auto host_copy(Span s) {
    std::vector<decltype(b.read(s))> out(s.size());
    b.read(s, std::span{out});
    return out;
  }
  template <class Span>
  std::size_t read_one(Span s) {
    return b.read(s);
  }

  B& b;
};

}  // namespace

TEST_CASE("the archetype gives the host's bits, through queued verbs") {
  host plain;
  archetype_backend boxed;
  outcome const expected = runner{plain}();
  CHECK(expected.numbers.back() == 0);
  CHECK(expected.numbers[5] == 3);  // one NaN, seen by three passes
  CHECK(runner{boxed}() == expected);
  archetype_backend copy{boxed};
  CHECK(runner{copy}() == expected);
}

TEST_CASE("verbs of the archetype wait their turn") {
  archetype_backend b;
  auto memory = b.allocate<float>(4);
  b.fill(memory.view(), 1.0F);
  b.for_each(
      3, [](std::size_t i, float& x) { x += static_cast<float>(i); }, memory.view());
  CHECK(b.queued() == 2);
  b.wait();
  CHECK(b.queued() == 0);
  b.fill(memory.view().subspan(0, 1), 5.0F);
  std::array<float, 4> out{};
  b.read(memory.view(), std::span{out});
  CHECK(out == std::array{5.0F, 2.0F, 3.0F, 1.0F});
  CHECK(b.queued() == 0);
}

TEST_CASE("the archetype counts reads, of its copies too") {
  archetype_backend b;
  auto memory = b.allocate<float>(1);
  b.fill(memory.view(), 1.0F);
  b.wait();
  CHECK(b.reads() == 0);
  archetype_backend copy{b};
  CHECK(copy.read(memory.view()) == 1.0F);
  CHECK(b.read(memory.view()) == 1.0F);
  CHECK(b.reads() == 2);
}

TEST_CASE("fresh memory of the archetype is poison") {
  archetype_backend b;
  auto memory = b.allocate<float>(3);
  CHECK(!topsum::is_finite(b.read(memory.view().subspan(2, 1))));
  CHECK(b.allocated_bytes() >= 12);
}

TEST_CASE("giving memory of the archetype back waits for its verbs") {
  archetype_backend b;
  {
    auto memory = b.allocate<float>(1000);
    b.fill(memory.view(), 1.0F);
  }
  CHECK(b.queued() == 0);
}

TEST_CASE("transports may reach the archetype's memory, others may not") {
  archetype_backend b;
  auto memory = b.allocate<float>(2);
  b.fill(memory.view(), 2.0F);
  b.wait();
  using access = topsum::memory_access<archetype_span<float>>;
  CHECK(access::address(memory.view()) == access::writable_address(memory.view()));
  CHECK(access::as_bytes(memory.view()).size() == 8);
  float x = 0;
  std::memcpy(&x, access::address(memory.view()), sizeof x);
  CHECK(x == 2.0F);
}
