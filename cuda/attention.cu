// Tiled attention forward: cuda/attention_forward.hpp has the kernel. A policy's kernels are compiled with it
// (cuda/attention_pair.hpp).
#include "core/kernels.hpp"
#include "cuda/attention_forward.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

using namespace attention_kernels;

std::int64_t attention_prefix_sums(const AttentionCall& call) {
  return call.batch() * call.heads() * call.queries() * ((call.keys() + tile - 1) / tile);
}

std::int64_t attention_down_sums(std::int64_t heads, std::int64_t queries, std::int64_t keys, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype)), of_double = static_cast<std::int64_t>(sizeof(double));
  return (down_sum_count(heads, queries, keys) * size + of_double - 1) / of_double;
}

// Where backward does not need what goes down the queries, it lies here.
std::int64_t attention_workspace(const AttentionCall& call) {
  if (!sums_down(call) || call.down_sums) return 0;
  return attention_down_sums(call.batch() * call.heads(), call.queries(), call.keys(), call.q.dtype) *
         static_cast<std::int64_t>(sizeof(double));
}

void attention(const AttentionCall& given, void* workspace) {
  if (given.output.numel() == 0) return;
  AttentionCall call = given;
  if (!call.down_sums) call.down_sums.data = workspace;
  call.scan.policy != nullptr ? kernels_of(*call.scan.policy).forward(call) : forward(call);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
