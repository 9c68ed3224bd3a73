// SPDX-License-Identifier: BSL-1.0
// The 16-bit formats against their definition: every pattern there and back, every boundary of rounding.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>
#include <topsum/core/value.hpp>
#include <topsum/detail/host_isa.hpp>
#include <vector>

namespace {

using topsum::bfloat16;
using topsum::from_wide;
using topsum::half;
using topsum::to_wide;

template <class T>
struct format;
template <>
struct format<half> {
  static constexpr int fraction_bits = 10;
  static constexpr int bias = 15;
};
template <>
struct format<bfloat16> {
  static constexpr int fraction_bits = 7;
  static constexpr int bias = 127;
};

template <class T>
constexpr unsigned infinity_bits = 0x8000U - (1U << format<T>::fraction_bits);

// The value that the standard gives to positive bits; what would follow the largest number in place of infinity.
template <class T>
double meaning(unsigned bits) {
  constexpr int f = format<T>::fraction_bits;
  unsigned const exponent = bits >> f;
  unsigned const fraction = bits & ((1U << f) - 1);
  return exponent == 0 ? std::ldexp(fraction, 1 - format<T>::bias - f)
                       : std::ldexp(fraction + (1U << f), static_cast<int>(exponent) - format<T>::bias - f);
}

template <class T>
T of(unsigned bits) {
  return T::from_bits(static_cast<std::uint16_t>(bits));
}

bool same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

// The bits of the nearest value by search.
template <class T>
unsigned nearest(float x) {
  double const size = std::abs(static_cast<double>(x));
  unsigned low = 0;
  unsigned high = infinity_bits<T>;
  while (high - low > 1) {
    unsigned const middle = (low + high) / 2;
    (meaning<T>(middle) <= size ? low : high) = middle;
  }
  double const below = size - meaning<T>(low);
  double const above = meaning<T>(high) - size;
  unsigned const found = below < above ? low : above < below ? high : low % 2 == 0 ? low : high;
  return found | (std::signbit(x) ? 0x8000U : 0U);
}

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half> &&
              std::is_trivially_default_constructible_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
static_assert(half{1.0F}.bits() == 0x3c00 && half{-65504.0F}.bits() == 0xfbff && static_cast<float>(half{}) == 0.0F);
static_assert(bfloat16{1.0F}.bits() == 0x3f80 && static_cast<float>(bfloat16::from_bits(0xc040)) == -3.0F);
static_assert(half{0.0F} == half{-0.0F} && !(half{1.0F} == half{2.0F}));
static_assert(!std::is_convertible_v<float, half> && !std::is_convertible_v<half, float>, "conversions are seen");
static_assert(!std::is_convertible_v<float, bfloat16> && !std::is_convertible_v<bfloat16, float>);

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern means what the standard says, and returns to itself", T, half, bfloat16) {
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < 0x8000U; ++bits) {
    float const x = to_wide(of<T>(bits));
    float const y = to_wide(of<T>(bits | 0x8000U));
    bool good = same(y, -x);
    if (bits < infinity_bits<T>) {
      good = good && same(x, static_cast<float>(meaning<T>(bits)));
    } else if (bits == infinity_bits<T>) {
      good = good && x == std::numeric_limits<float>::infinity();
    } else {
      good = good && std::isnan(x) && std::isnan(to_wide(from_wide<T>(x))) && std::isnan(to_wide(from_wide<T>(y)));
    }
    if (bits <= infinity_bits<T>) {
      good = good && from_wide<T>(x).bits() == bits && from_wide<T>(y).bits() == (bits | 0x8000U);
    }
    wrong += good ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("magnitudes order as the 16-bit patterns do, and what is finite stays so", T, half, bfloat16) {
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < 0x8000U; ++bits) {
    for (unsigned const sign : {0U, 0x8000U}) {
      float const x = to_wide(of<T>(bits | sign));
      bool good = topsum::is_finite(x) == (bits < infinity_bits<T>);
      if (bits < 0x7fffU)
        good = good && topsum::magnitude(x) < topsum::magnitude(to_wide(of<T>((bits + 1) | (sign ^ 0x8000U))));
      good = good && topsum::magnitude(x) == topsum::magnitude(to_wide(of<T>(bits)));
      wrong += good ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("between neighbours the nearer one is chosen, and the even one half way", T, half, bfloat16) {
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < infinity_bits<T>; ++bits) {
    auto const middle = static_cast<float>((meaning<T>(bits) + meaning<T>(bits + 1)) / 2);
    unsigned const even = bits % 2 == 0 ? bits : bits + 1;
    float const below = std::nextafter(middle, 0.0F);
    float const above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    for (float const sign : {1.0F, -1.0F}) {
      unsigned const minus = sign < 0 ? 0x8000U : 0U;
      bool const good = from_wide<T>(sign * middle).bits() == (even | minus) &&
                        from_wide<T>(sign * below).bits() == (bits | minus) &&
                        from_wide<T>(sign * above).bits() == ((bits + 1) | minus);
      wrong += good ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("floats of every size round to the nearest", T, half, bfloat16) {
  std::mt19937 random{5};
  unsigned wrong = 0;
  for (int i = 0; i < 500000; ++i) {
    auto const x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    auto const y = static_cast<float>(std::ldexp(static_cast<double>(random()) - 2147483648.0, -(i % 64)));
    for (float const value : {x, y}) {
      unsigned const got = from_wide<T>(value).bits();
      bool const good = std::isnan(value) ? (got & 0x7fffU) > infinity_bits<T> : got == nearest<T>(value);
      wrong += good ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a half ends at 65504: from 65520 on a float becomes infinity, below 2^-25 zero") {
  CHECK(half{65519.996F}.bits() == 0x7bff);
  CHECK(half{65520.0F}.bits() == 0x7c00);
  CHECK(half{-std::numeric_limits<float>::max()}.bits() == 0xfc00);
  CHECK(half{std::ldexp(1.0F, -25)}.bits() == 0);
  CHECK(half{-std::ldexp(1.0F, -25)}.bits() == 0x8000);
  CHECK(half{std::nextafter(std::ldexp(1.0F, -25), 1.0F)}.bits() == 1);
  CHECK(half{std::numeric_limits<float>::denorm_min()}.bits() == 0);
  CHECK(bfloat16{std::numeric_limits<float>::max()}.bits() == 0x7f80);
}

TEST_CASE_TEMPLATE("zeros are equal and NaN is not", T, half, bfloat16) {
  CHECK(T{0.0F} == T{-0.0F});
  CHECK(T{0.1F} == T{0.1F});
  CHECK(!(T{0.1F} == T{0.2F}));
  T const not_a_number{std::numeric_limits<float>::quiet_NaN()};
  CHECK(!(not_a_number == not_a_number));
}

#if defined(__FLT16_MANT_DIG__)

namespace {

// What the compiler's own conversions give: a library's where the target has none, the processor's below.
struct compilers {
  static float wide(_Float16 x) { return static_cast<float>(x); }
  static _Float16 narrow(float x) { return static_cast<_Float16>(x); }
};
#if defined(__x86_64__) && defined(__GNUC__)
struct processors {
  [[gnu::target("f16c"), gnu::noinline]] static float wide(_Float16 x) { return static_cast<float>(x); }
  [[gnu::target("f16c"), gnu::noinline]] static _Float16 narrow(float x) { return static_cast<_Float16>(x); }
};
#else
using processors = compilers;
#endif

template <class Theirs>
unsigned differences() {
  unsigned wrong = 0;
  auto const check = [&](bool good) { wrong += good ? 0U : 1U; };
  auto const narrow_alike = [&](float x) {
    auto const ours = std::bit_cast<std::uint16_t>(from_wide<_Float16>(x));
    auto const theirs = std::bit_cast<std::uint16_t>(Theirs::narrow(x));
    check(std::isnan(x) ? (ours & 0x7fffU) > 0x7c00U : ours == theirs);
  };
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    auto const x = std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits));
    float const theirs = Theirs::wide(x);
    check(std::isnan(theirs) ? std::isnan(to_wide(x)) : same(to_wide(x), theirs));
    for (std::uint32_t const around : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x1fffU})
      narrow_alike(std::bit_cast<float>(std::bit_cast<std::uint32_t>(to_wide(x)) + around));
  }
  std::mt19937 random{6};
  for (int i = 0; i < 500000; ++i) narrow_alike(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return wrong;
}

}  // namespace

TEST_CASE("half converts as the compiler's half does, in a library and in hardware") {
  CHECK(differences<compilers>() == 0);
  if (topsum::detail::cpu_has(topsum::instruction_set::avx2)) CHECK(differences<processors>() == 0);  // has F16C too
}

#endif

namespace {

// A type of a user, with bits that are known already.
enum class packed : std::uint16_t {};

// One whose traits say nothing but the width: it converts by itself.
struct fixed_point {
  constexpr explicit fixed_point(float x = 0) : hundredths{static_cast<std::int16_t>(x * 100)} {}
  constexpr explicit operator float() const { return static_cast<float>(hundredths) / 100; }
  std::int16_t hundredths;
};

}  // namespace

template <>
struct topsum::value_traits<packed> : topsum::same_format_as<topsum::bfloat16, packed> {};
template <>
struct topsum::value_traits<fixed_point> {
  using wide = float;
  static constexpr std::uint32_t code = 200;
};

TEST_CASE("a type of the same format converts as the known one, another by its own conversions") {
  CHECK(topsum::value_traits<packed>::code == topsum::value_traits<bfloat16>::code);
  CHECK(to_wide(static_cast<packed>(0x4040)) == 3.0F);
  CHECK(from_wide<packed>(3.0F) == static_cast<packed>(0x4040));
  CHECK(topsum::value_traits<fixed_point>::code == 200);
  CHECK(to_wide(fixed_point{1.25F}) == 1.25F);
  CHECK(from_wide<fixed_point>(-2.5F).hundredths == -250);
  CHECK(to_wide(2.5) == 2.5);
  CHECK(from_wide<float>(2.5F) == 2.5F);
}
