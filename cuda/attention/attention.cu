// Fused attention forward. The kernel is in cuda/attention/forward.hpp; the kernels of a score modification are
// compiled with it (cuda/attention/score_mod.hpp).
#include "core/device/kernels.hpp"
#include "cuda/attention/forward.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

using namespace attention_kernels;

std::int64_t attention_prefix_sums(const AttentionCall& call) {
  return call.batch() * call.heads() * call.queries() * ((call.keys() + tile - 1) / tile);
}

std::int64_t attention_workspace(const AttentionCall&) { return 0; }

void attention(const AttentionCall& call, void*) {
  if (call.output.numel() == 0) return;
  call.score_mod.mod != nullptr ? kernels_of(*call.score_mod.mod).forward(call) : forward(call);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
