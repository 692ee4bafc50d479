// A score policy as attention receives it: the inputs that it reads, and its compiled kernels. For its functions see
// core/attention/pair.hpp, which only the files of policies and of kernels include.
#pragma once

#include <cstdint>
#include <string_view>

namespace tally {

struct AttentionCall;

struct PairNeeds {
  bool distance = false;  // p.distance: i - j; generation in a window with sink tokens then evicts no keys
  bool scan = false;      // gate is summed: p.sum
  bool own = true;        // the sum takes the gate of key j itself in; else it ends at j + 1
  bool adds = false;      // logit is p.s plus a function of other inputs; only it reads p.s, which may include a matmul
  bool biased = false;    // p.s includes the biases of other encodings in a combination; else the logit gets them
  bool other = false;     // p.other: scale r_i.G_j of separate operands; s if a call has none
  bool spends = false;    // l = ... - sum <= 0: e^-sum is the mass left over by keys up to j; for the softmax_rule exp
  bool table = false;     // p.entry: of the query's table [B, H, T, P+1], any P
  bool settles = false;   // gates are >= 0, only gates read p.other, and p.sum is only the table position of p.entry:
                          // once it exceeds P, gates further left can be skipped
  bool knots = false;     // the table is [B, H, T, 2 N] of N knots: v_i[0], r_i[0], v_i[1], ...
  bool adds_entry = false;  // logit is p.s + p.entry: a factor on the logits is applied to the table
  int rows = 0;             // row<n>(p), n < rows: numbers of the query [B, H, T, rows]
  int heads = 0;            // head<n>(p), n < heads: numbers of the head [H, heads]
};

// A policy compiled for a backend of CUDA kernels, for calls in f32 and f64.
struct PairKernels {
  void (*forward)(const AttentionCall& call);
  // device: the DeviceCall of that backend, in the type of the call.
  void (*backward_rows)(const AttentionCall& call, const void* device);
  void (*backward_keys)(const AttentionCall& call, const void* device);
};

// A policy as passed to kernels and to reference attention; autograd/pair.hpp makes one.
struct PairPolicy {
  std::string_view name;
  PairNeeds needs;
  // For any CPU, and for x86-64-v4 and v3; null: not compiled.
  const struct PairLoops *loops, *loops_v4, *loops_v3;
  const PairKernels *cuda_host, *cuda;  // null: not compiled
  const struct PairOnTensors* on_tensors;
  std::uint32_t inputs;  // that logits have a derivative for (core/attention/pair_inputs.hpp)
};

}  // namespace tally
