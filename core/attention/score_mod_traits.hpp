// A compiled score modification, and the operands and sums that it needs. For the functions of its source see
// core/attention/score_mod.hpp, which only the files of score modifications and of kernels include.
#pragma once

#include <cstdint>
#include <string_view>

namespace tally {

struct AttentionCall;

namespace attention {

// Bits of the inputs of a score modification. The scalars of the row begin at first_scalar_input; those of the head
// follow them.
inline constexpr int input_s = 0, input_gate_logit = 1, input_sum = 2, input_entry = 3, first_scalar_input = 4,
                     most_scalars = 16, input_distance = 20;

// Whether the set contains any of `count` inputs from `first` on.
constexpr bool reads(std::uint32_t inputs, int first, int count = 1) {
  return (inputs >> first & ((1u << count) - 1)) != 0;
}

}  // namespace attention

// Deduced from the functions of a score modification and from the inputs that they read.
struct ScoreModTraits {
  bool sums = false;            // has a gate: p.sum
  bool sums_own_gate = true;    // the sum of key j includes its own gate; else it ends at j + 1
  bool gate_logit = false;      // reads p.gate_logit
  bool table = false;           // reads p.entry
  bool knots = false;           // whose table has knots
  bool own_position = false;    // has position; else a table is read at p.sum
  bool saturates = false;       // once p.sum exceeds the table, gates further left have no effect
  bool adds = false;            // has bias: only adds to p.s, which may then include another product
  bool adds_entry = false;      // bias is p.entry, which backward then does not need
  bool after_biases = false;    // has logit_after_biases: p.s includes the biases of the other encodings
  int rows = 0, heads = 0;      // number of scalars by row and by head
  std::uint32_t gradients = 0;  // inputs that the logit has a derivative by, directly or through gate and position

  // Whether scores get a gradient. own_gates: the call has separate operands for p.gate_logit.
  constexpr bool reaches_scores(bool own_gates) const {
    return attention::reads(gradients, attention::input_s) ||
           (!own_gates && attention::reads(gradients, attention::input_gate_logit));
  }
};

// A score modification compiled for a backend of CUDA kernels, for calls in f32 and f64 and, if take_bf16, for operands
// in bf16.
struct ScoreModKernels {
  bool take_bf16;
  void (*forward)(const AttentionCall& call);
  // device: the DeviceCall of that backend, in the type of the call.
  void (*backward_rows)(const AttentionCall& call, const void* device);
  void (*backward_keys)(const AttentionCall& call, const void* device);
};

// A score modification as passed to kernels and to reference attention; autograd/score_mod.hpp makes one.
struct ScoreMod {
  std::string_view name;
  ScoreModTraits traits;
  // For any CPU, and for x86-64-v4 and v3; null: not compiled.
  const struct ScoreModLoops *loops, *loops_v4, *loops_v3;
  const ScoreModKernels *cuda_host, *cuda;  // null: not compiled
  const struct ScoreModOnTensors* on_tensors;
};

}  // namespace tally
