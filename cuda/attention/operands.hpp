// Operands in bf16: which calls the kernels for bf16 take, their forms, and f32 copies for the other kernels.
#pragma once

#include <utility>
#include <vector>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "cuda/attention/stage.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Whether the kernels for bf16 take these operands: on tensor cores, for heads of up to 128 columns, or 64 if gates
// have operands of their own, in rows of aligned chunks. A table must have at least two entries, which are neighbours.
inline bool has_bf16_kernel(const AttentionCall& call) {
  constexpr int tensor_cores_since = 8;
  if (context().properties.major < tensor_cores_since) return false;
  if (call.score_mod.mod != nullptr && !kernels_of(*call.score_mod.mod).take_bf16) return false;
  const std::int64_t widest = call.score_mod.gate_key ? 64 : 128;
  const View& table = call.score_mod.table;
  bool has = !table || (table.strides[3] == 1 && table.shape[3] > 1);
  for_each_operand(
      [&](const OperandRule& rule, const View& x) {
        if (!x || rule.type != OperandRule::Type::matmul) return;
        has = has && x.dtype == DType::bf16 && x.shape[3] <= widest && x.shape[3] % stage_chunk == 0 &&
              x.strides[3] == 1 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
        for (int axis = 0; axis < 3; ++axis) has = has && (x.strides[axis] % stage_chunk == 0 || x.shape[axis] == 1);
      },
      call);
  return has;
}

// The widest heads of the backward kernels for bf16. With a score modification, more would not fit into registers.
template <class Mod>
inline constexpr int widest_in_backward = has_score_mod<Mod> ? 64 : 128;

// The same for backward.
inline bool has_bf16_backward(const AttentionCall& call) {
  const int widest = call.score_mod.mod != nullptr ? widest_in_backward<ScoreMod> : widest_in_backward<NoScoreMod>;
  return has_bf16_kernel(call) && std::max(call.q.shape[3], call.v.shape[3]) <= widest;
}

// Calls f.operator()<width of a head in shared memory, family>() for a call with bf16 operands.
template <class Mod, int widest, class F>
void visit_bf16_form(const AttentionCall& call, const F& f) {
  const auto with_width = [&]<Family family>() {
    if constexpr (family != Family::gated && widest > 64) {
      if (std::max(call.q.shape[3], call.v.shape[3]) > 64) return f.template operator()<128, family>();
    }
    f.template operator()<64, family>();
  };
  if constexpr (!has_score_mod<Mod>) {
    call.softmax_rule.kind == Rule::softmax ? with_width.template operator()<Family::plain>()
                                            : with_width.template operator()<Family::ruled>();
  } else {
    if constexpr (traits_of<Mod>.gate_logit) {
      if (call.score_mod.gate_key) return with_width.template operator()<Family::gated>();
    }
    with_width.template operator()<Family::paired>();
  }
}

// A call with f32 copies of its bf16 operands in a workspace, if `needed`.
struct CallInF32 {
  AttentionCall call;
  std::vector<std::pair<View, View>> copies;  // and their originals

  CallInF32(const AttentionCall& given, Arena& arena, bool needed) : call(given) {
    const auto replace = [&](const OperandRule&, View& x) {
      if (!needed || !x || x.dtype != DType::bf16) return;
      const View copy{arena.take<float>(x.numel()), DType::f32, x.shape, dense_strides(x.shape)};
      copies.emplace_back(copy, std::exchange(x, copy));
    };
    for_each_operand(replace, call);
  }
  void copy_operands() const {
    for (const auto& [to, from] : copies) copy(to, from);
  }
};

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels
