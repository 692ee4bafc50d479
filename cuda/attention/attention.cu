// Fused attention forward. The kernel is in cuda/attention/forward.hpp; the kernels of a score modification are
// compiled with it (cuda/attention/score_mod.hpp).
#include "core/device/kernels.hpp"
#include "cuda/attention/forward.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

using namespace attention_kernels;

std::int64_t attention_prefix_sums(const AttentionCall& call) {
  return call.batch() * call.heads() * call.queries() * ((call.keys() + tile - 1) / tile);
}

std::int64_t attention_workspace(const AttentionCall& call) {
  Arena arena(nullptr);
  const CallInF32 own(call, arena, !has_bf16_kernel(call));
  return arena.bytes();
}

void attention(const AttentionCall& call, void* workspace) {
  if (call.output.numel() == 0) return;
  Arena arena(workspace);
  const CallInF32 own(call, arena, !has_bf16_kernel(call));
  own.copy_operands();
  const ScoreMod* const mod = call.score_mod.mod;
  mod != nullptr ? kernels_of(*mod).forward(own.call) : forward(own.call);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
