// SPDX-License-Identifier: BSL-1.0
/// \file
/// CUDA's 16-bit types as a gradient's values: the only header that includes `<cuda_fp16.h>` and `<cuda_bf16.h>`. Include it
/// yourself, before the plan is made; any C++ compiler will do, given the folder of CUDA's headers.
#ifndef TOPSUM_CORE_CUDA_VALUES_HPP
#define TOPSUM_CORE_CUDA_VALUES_HPP

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>
#include <topsum/core/value.hpp>

namespace topsum {

/// The same bits as `half`, and so its code: ranks may mix the two.
template <>
struct value_traits<__half> : same_format_as<half, __half> {};

/// The same bits as `bfloat16`, and so its code.
template <>
struct value_traits<__nv_bfloat16> : same_format_as<bfloat16, __nv_bfloat16> {};

}  // namespace topsum

#endif
