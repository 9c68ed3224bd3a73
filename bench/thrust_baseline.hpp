// SPDX-License-Identifier: BSL-1.0
/// \file
/// What people write with Thrust, on one core: `copy_if` of the positions whose value reaches a threshold.
#ifndef BENCH_THRUST_BASELINE_HPP
#define BENCH_THRUST_BASELINE_HPP

#if __has_include(<thrust/copy.h>)
#include <thrust/copy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cpp/execution_policy.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bench {

#if __has_include(<thrust/copy.h>)
inline constexpr bool has_thrust = true;

/// Positions with |values[i]| >= threshold, increasing, to the front of `out`; returns how many.
template <class R>
std::size_t thrust_copy_if(std::span<R const> values, R threshold, std::vector<std::uint32_t>& out) {
  thrust::counting_iterator<std::uint32_t> const first{0};
  auto const end = thrust::copy_if(thrust::cpp::par, first, first + static_cast<std::ptrdiff_t>(values.size()),
                                   values.data(), out.data(), [threshold](R x) { return std::abs(x) >= threshold; });
  return static_cast<std::size_t>(end - out.data());
}
#else
inline constexpr bool has_thrust = false;

template <class R>
std::size_t thrust_copy_if(std::span<R const>, R, std::vector<std::uint32_t>&) {
  return 0;
}
#endif

}  // namespace bench

#endif
