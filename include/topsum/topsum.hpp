// SPDX-License-Identifier: BSL-1.0
/// \file
/// Everything but the headers that need a package: MPI is in `topsum/transport/mpi.hpp`,
/// CUDA's value types are in `topsum/core/cuda_values.hpp`.
#ifndef TOPSUM_TOPSUM_HPP
#define TOPSUM_TOPSUM_HPP

#include <topsum/allreduce.hpp>
#include <topsum/backend/host.hpp>
#include <topsum/codec/as.hpp>
#include <topsum/codec/bitmap.hpp>
#include <topsum/codec/coded.hpp>
#include <topsum/codec/elias_fano.hpp>
#include <topsum/codec/int8.hpp>
#include <topsum/codec/lookup.hpp>
#include <topsum/codec/packed.hpp>
#include <topsum/codec/qsgd.hpp>
#include <topsum/codec/raw.hpp>
#include <topsum/codec/sign.hpp>
#include <topsum/codec/switching.hpp>
#include <topsum/concepts.hpp>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/dimensions.hpp>
#include <topsum/core/half.hpp>
#include <topsum/error.hpp>
#include <topsum/exchange/agreement.hpp>
#include <topsum/exchange/aligned.hpp>
#include <topsum/exchange/dense.hpp>
#include <topsum/exchange/gather_all.hpp>
#include <topsum/exchange/hierarchical.hpp>
#include <topsum/exchange/interleaved_quota.hpp>
#include <topsum/exchange/merge_tree.hpp>
#include <topsum/exchange/ok_topk.hpp>
#include <topsum/exchange/recursive_doubling.hpp>
#include <topsum/exchange/spar_reduce_scatter.hpp>
#include <topsum/exchange/split_gather.hpp>
#include <topsum/layout.hpp>
#include <topsum/plan.hpp>
#include <topsum/reduction/contributor_mean.hpp>
#include <topsum/reduction/mean.hpp>
#include <topsum/reduction/sum.hpp>
#include <topsum/residual/decoupled_momentum.hpp>
#include <topsum/residual/error_feedback.hpp>
#include <topsum/residual/momentum_correction.hpp>
#include <topsum/residual/no_residual.hpp>
#include <topsum/select/adtopk.hpp>
#include <topsum/select/all_dimension.hpp>
#include <topsum/select/alternate.hpp>
#include <topsum/select/bisected_threshold.hpp>
#include <topsum/select/chunked.hpp>
#include <topsum/select/exact_budget.hpp>
#include <topsum/select/exponential_threshold.hpp>
#include <topsum/select/exponential_warm_up.hpp>
#include <topsum/select/fixed_threshold.hpp>
#include <topsum/select/gaussian_threshold.hpp>
#include <topsum/select/global.hpp>
#include <topsum/select/layer_wise.hpp>
#include <topsum/select/reused_threshold.hpp>
#include <topsum/select/sampled_threshold.hpp>
#include <topsum/select/scope.hpp>
#include <topsum/select/shared_random.hpp>
#include <topsum/select/top_k.hpp>
#include <topsum/transport/counting.hpp>
#include <topsum/transport/local.hpp>
#include <topsum/transport/subgroups.hpp>
#include <topsum/version.hpp>

#endif
