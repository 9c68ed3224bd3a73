// SPDX-License-Identifier: BSL-1.0
// Sizes, errors and edges of codecs.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>
#include <vector>

namespace {

using topsum::host;

// What a value codec makes of values at indices 0, 1, 2, ...
template <class R, class V>
std::vector<R> through(V const& codec, std::vector<R> const& values) {
  topsum::coded const whole{topsum::packed{}, codec};
  host backend;
  std::vector<std::uint32_t> indices(values.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::uint32_t>(i);
  std::size_t const size = whole.template bytes<R, std::uint32_t>(values.size(), 0, values.size());
  std::vector<std::byte> message(size);
  whole.encode(backend, topsum::entries_run<host, R, std::uint32_t>{indices, values}, 0, values.size(), message);
  topsum::entries<host, R, std::uint32_t> out{backend, values.size()};
  std::uint32_t fault = 0;
  whole.decode(backend, topsum::host_span<std::byte const>{message}, values.size(), 0, values.size(), out.view(),
               topsum::host_span<std::uint32_t>{&fault, 1});
  CHECK(fault == 0);
  return {out.view().values.begin(), out.view().values.end()};
}

std::vector<float> laplace(std::size_t n, std::uint64_t seed = 1) {
  return topsum::laws::make_input<float>(topsum::laws::input::laplace, n, seed);
}

}  // namespace

TEST_CASE("Elias-Fano takes at most 8.7 bits an index at 1 % of 2^20, and at most what its documentation says") {
  constexpr std::size_t n = std::size_t{1} << 20;
  constexpr std::size_t k = n / 100;
  CHECK(8.0 * static_cast<double>(topsum::elias_fano{}.bytes(k, n)) / static_cast<double>(k) <= 8.7);
  for (std::size_t const extent : {std::size_t{1}, std::size_t{2}, std::size_t{97}, std::size_t{5000}, n}) {
    for (std::size_t count = 1; count <= extent; count = count * 3 / 2 + 1) {
      double const ratio = static_cast<double>(extent) / static_cast<double>(count);
      double const low = std::floor(std::log2(ratio));
      double const bits = low + 1 + ratio / std::exp2(low);
      CHECK(8 * static_cast<double>(topsum::elias_fano{}.bytes(count, extent)) <=
            bits * static_cast<double>(count) + 16);
    }
  }
  CHECK(topsum::elias_fano{}.bytes(0, n) == 0);
  CHECK(topsum::packed{}.bytes(k, n) == (k * 20 + 7) / 8);
  CHECK(topsum::packed{}.bytes(3, 4096) == 5);
  CHECK(topsum::packed{}.bytes(1, 1) == 0);
  CHECK(topsum::bitmap{}.bytes(1, 17) == 3);
}

TEST_CASE("indices beyond 32 bits survive every index codec but the bitmap, whose size would be the range's") {
  std::size_t const first = std::size_t{7} << 40;
  std::size_t const extent = std::size_t{1} << 45;
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < 1000; ++i)
    indices.push_back(first + i * (extent / 1000) + topsum::random_bits(1, i) % 99);
  indices.back() = first + extent - 1;
  host backend;
  auto const check = [&](auto const& codec) {
    std::vector<std::byte> message(codec.bytes(indices.size(), extent));
    std::vector<std::uint64_t> out(indices.size());
    codec.template encode<host, std::uint64_t>(backend, topsum::host_span<std::uint64_t const>{indices}, first, extent,
                                               topsum::host_span<std::byte>{message});
    codec.template decode<host, std::uint64_t>(backend, topsum::host_span<std::byte const>{message}, first, extent,
                                               topsum::host_span<std::uint64_t>{out});
    CHECK(out == indices);
  };
  check(topsum::elias_fano{});
  check(topsum::packed{});
}

TEST_CASE("bytes_at_most bounds every split of entries among messages") {
  auto const check = [](auto const& codec) {
    for (std::size_t const extent : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{100000}}) {
      for (std::size_t const messages : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64}}) {
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
          std::size_t total = 0;
          std::size_t bytes = 0;
          for (std::size_t m = 0; m < messages; ++m) {
            std::uint64_t const random = topsum::random_bits(seed, m);
            std::size_t const range = random % 3 == 0 ? extent : 1 + (random >> 8) % extent;
            std::size_t const count = (random >> 40) %
                                      (random % 5 == 0 ? range + 1 : std::min<std::size_t>(range, 9) + 1);
            total += count;
            bytes += codec.template bytes<float, std::uint32_t>(count, 0, range);
          }
          CHECK(bytes <= codec.template bytes_at_most<float, std::uint32_t>(total, messages, extent));
        }
      }
    }
  };
  check(topsum::raw{});
  check(topsum::coded{topsum::elias_fano{}, topsum::as_is{}});
  check(topsum::coded{topsum::elias_fano{}, topsum::lookup<3>{}});
  check(topsum::coded{topsum::packed{}, topsum::sign{}});
  check(topsum::coded{topsum::bitmap{}, topsum::int8{}});
  check(topsum::switching{topsum::raw{}});
  check(topsum::switching{topsum::coded{topsum::elias_fano{}, topsum::as<topsum::half>{}}});
}

TEST_CASE("switching takes the smaller form on both sides, and keeps zeros") {
  topsum::switching const codec{topsum::raw{}};
  CHECK(codec.bytes<float, std::uint32_t>(10, 0, 1000) == 80);
  CHECK(codec.bytes<float, std::uint32_t>(100, 0, 1000) == 125 + 400);
  std::vector<std::uint32_t> const indices{2, 3, 5, 8};
  std::vector<float> const values{1, 0, -2, 0};
  host backend;
  std::vector<std::byte> message(codec.bytes<float, std::uint32_t>(4, 0, 10));
  CHECK(message.size() == 2 + 16);
  codec.encode(backend, topsum::entries_run<host, float, std::uint32_t>{indices, values}, 0, 10,
               topsum::host_span<std::byte>{message});
  topsum::entries<host, float, std::uint32_t> out{backend, 4};
  std::uint32_t fault = 0;
  codec.decode(backend, topsum::host_span<std::byte const>{message}, 4, 0, 10, out.view(),
               topsum::host_span<std::uint32_t>{&fault, 1});
  CHECK(std::equal(indices.begin(), indices.end(), out.view().indices.begin()));
  CHECK(std::equal(values.begin(), values.end(), out.view().values.begin()));
  message[1] |= std::byte{3};  // more bits than entries
  codec.decode(backend, topsum::host_span<std::byte const>{message}, 4, 0, 10, out.view(),
               topsum::host_span<std::uint32_t>{&fault, 1});
  CHECK(fault == 1);
}

TEST_CASE("narrow floats are the nearest, and what is too large becomes the largest") {
  auto const x = laplace(5000);
  auto const halves = through(topsum::as<topsum::half>{}, x);
  auto const brains = through(topsum::as<topsum::bfloat16>{}, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(halves[i] == static_cast<float>(topsum::half{x[i]}));
    CHECK(brains[i] == static_cast<float>(topsum::bfloat16{x[i]}));
  }
  float const most = std::numeric_limits<float>::max();
  CHECK(through(topsum::as<topsum::half>{}, std::vector<float>{1e6F, -1e6F, 65504.0F, 65519.9F, most}) ==
        std::vector<float>{65504, -65504, 65504, 65504, 65504});
  for (float const y : through(topsum::as<topsum::bfloat16>{}, std::vector<float>{most, -most}))
    CHECK(std::isfinite(y));
  CHECK(through(topsum::as<float>{}, std::vector<double>{1e300, 0.1})[0] == double{most});
  CHECK(through(topsum::as<float>{}, std::vector<double>{1e300, 0.1})[1] == double{0.1F});
}

TEST_CASE("every 16-bit value survives its own format") {
  std::vector<float> halves;
  std::vector<float> brains;
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    float const h = static_cast<float>(topsum::half::from_bits(static_cast<std::uint16_t>(bits)));
    float const b = std::bit_cast<float>(bits << 16);
    if (std::isfinite(h)) halves.push_back(h);
    if (std::isfinite(b)) brains.push_back(b);
  }
  auto const same = [](std::vector<float> const& a, std::vector<float> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    });
  };
  CHECK(same(through(topsum::as<topsum::half>{}, halves), halves));
  CHECK(same(through(topsum::as<topsum::bfloat16>{}, brains), brains));
}

TEST_CASE("int8 errs by half a step at most") {
  auto const x = laplace(3000);
  auto const y = through(topsum::int8{}, x);
  float largest = 0;
  for (float v : x) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) <= largest / 254 * 1.0001F);
  CHECK(through(topsum::int8{}, std::vector<float>{0, 0}) == std::vector<float>{0, 0});
  float const tiny = std::numeric_limits<float>::denorm_min();
  for (float v : through(topsum::int8{}, std::vector<float>{tiny, -tiny})) CHECK(std::isfinite(v));
}

TEST_CASE("sign sends the mean magnitude") {
  CHECK(through(topsum::sign{}, std::vector<float>{1, -3, 0, -4}) == std::vector<float>{2, -2, 2, -2});
  float const most = std::numeric_limits<float>::max();
  for (float v : through(topsum::sign{}, std::vector<float>{most, -most, most})) CHECK(std::isfinite(v));
}

TEST_CASE_TEMPLATE("lookup keeps the sum of a message, and errs by a bin inside three deviations", V, topsum::lookup<2>,
                   topsum::lookup<4>, topsum::lookup<8>) {
  auto const x = laplace(4000, 3);
  auto const y = through(V{}, x);
  double sum_x = 0;
  double sum_y = 0;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum_x += double{x[i]};
    sum_y += double{y[i]};
    squares += double{x[i]} * double{x[i]};
  }
  CHECK(sum_y == doctest::Approx(sum_x).epsilon(1e-3));
  double const mean = sum_x / static_cast<double>(x.size());
  double const deviation = std::sqrt(squares / static_cast<double>(x.size()) - mean * mean);
  double const bin = 6 * deviation / static_cast<double>(V::bins);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(double{x[i]} - mean) < 3 * deviation - bin)
      CHECK(std::abs(double{x[i]} - double{y[i]}) <= bin * 1.001);
  }
  CHECK(through(V{}, std::vector<float>{7, 7, 7}) == std::vector<float>{7, 7, 7});
}

TEST_CASE_TEMPLATE("qsgd is unbiased over seeds, and the same for the same seed", V, topsum::qsgd<2>, topsum::qsgd<4>,
                   topsum::qsgd<8>) {
  auto const x = laplace(40);
  double norm = 0;
  for (float v : x) norm += double{v} * double{v};
  norm = std::sqrt(norm);
  constexpr std::size_t seeds = 4000;
  std::vector<double> mean(x.size());
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    auto const y = through(V{.seed = seed}, x);
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += double{y[i]} / seeds;
  }
  // A level's spread over the root of the number of seeds, five times.
  double const bound = 5 * norm / static_cast<double>(V::levels) / std::sqrt(double{seeds});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(mean[i] - double{x[i]}) <= bound);
  CHECK(through(V{.seed = 5}, x) == through(V{.seed = 5}, x));
  CHECK(through(V{}, std::vector<float>{0, 0}) == std::vector<float>{0, 0});
}

TEST_CASE("codecs say what they are") {
  CHECK(topsum::to_text(topsum::coded{topsum::elias_fano{}, topsum::as<topsum::half>{}}) ==
        "coded{.indices = elias_fano{}, .values = as<half>{}}");
  CHECK(topsum::to_text(topsum::coded{topsum::packed{}, topsum::qsgd<4>{.seed = 2}}) ==
        "coded{.indices = packed{}, .values = qsgd{.bits = 4, .seed = 2}}");
}
