// SPDX-License-Identifier: BSL-1.0
/// \file
/// Loops compiled for each instruction set of the host, one of which is chosen when they are called.
#ifndef TOPSUM_DETAIL_HOST_DISPATCH_HPP
#define TOPSUM_DETAIL_HOST_DISPATCH_HPP

#include <topsum/detail/host_isa.hpp>

namespace topsum::detail {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // else the vectoriser fuses products with sums, even behind a barrier
#endif

template <class Body, class... A>
auto run_portable(A&... arguments) {
  return Body::template run<portable_ops>(arguments...);
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class Body, class... A>
[[gnu::target("avx2,bmi,popcnt")]] auto run_avx2(A&... arguments) {
  return Body::template run<avx2_ops>(arguments...);
}

template <class Body, class... A>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt")]] auto run_avx512(A&... arguments) {
  return Body::template run<avx512_ops>(arguments...);
}
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/// `Body::run<Ops>(arguments...)` with the operations of `set`, which the CPU must have. `run`, and what it is to be compiled with in
/// these instructions, is `[[gnu::always_inline]]`. Products are rounded before sums.
template <class Body, class... A>
auto run_with(instruction_set set, A&&... arguments) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (set == instruction_set::avx512) return run_avx512<Body>(arguments...);
  if (set == instruction_set::avx2) return run_avx2<Body>(arguments...);
#endif
  static_cast<void>(set);
  return run_portable<Body>(arguments...);
}

}  // namespace topsum::detail

#endif
