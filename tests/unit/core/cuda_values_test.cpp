// SPDX-License-Identifier: BSL-1.0
// CUDA's 16-bit types are those of this library, bit for bit.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <topsum/core/cuda_values.hpp>
#include <topsum/topsum.hpp>
#include <vector>

namespace {

static_assert(topsum::value_type<__half> && topsum::value_type<__nv_bfloat16>);
static_assert(topsum::value_traits<__half>::code == topsum::value_traits<topsum::half>::code);
static_assert(topsum::value_traits<__nv_bfloat16>::code == topsum::value_traits<topsum::bfloat16>::code);

// Patterns for which this library and CUDA's own conversions differ.
template <class T>
unsigned differences() {
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    auto const x = std::bit_cast<T>(static_cast<std::uint16_t>(bits));
    auto const theirs = static_cast<float>(x);
    float const ours = topsum::to_wide(x);
    bool const same = std::isnan(theirs) ? std::isnan(ours)
                                         : std::bit_cast<std::uint32_t>(theirs) == std::bit_cast<std::uint32_t>(ours);
    float const between = ours * 1.0003F;
    bool const back = std::isnan(between) || std::bit_cast<std::uint16_t>(topsum::from_wide<T>(between)) ==
                                                 std::bit_cast<std::uint16_t>(T(between));
    wrong += same && back ? 0U : 1U;
  }
  return wrong;
}

}  // namespace

TEST_CASE("CUDA's 16-bit types convert as CUDA says") {
  CHECK(differences<__half>() == 0);
  CHECK(differences<__nv_bfloat16>() == 0);
}

TEST_CASE_TEMPLATE("plans take CUDA's 16-bit types", T, __half, __nv_bfloat16) {
  auto const results = topsum::local::run(2, [](topsum::local::communicator& comm) {
    auto plan = topsum::plan_allreduce<T>(comm, 100, topsum::top_k{.k = 3});
    std::vector<T> x(100);
    x[3] = T(comm.rank() == 0 ? 2.0F : 3.0F);
    plan(std::span<T>{x});
    return topsum::to_wide(x[3]);
  });
  CHECK(results == std::vector<float>{2.5F, 2.5F});
}
