// A score policy as attention is given it: what it reads, and its compiled kernels. Its functions, and how they are
// written: core/attention/pair.hpp, which only the files of policies and of kernels include.
#pragma once

#include <cstdint>
#include <string_view>

namespace tally {

struct AttentionCall;

// How many numbers of each channel `term` reads: of_query<n>(p), of_key<n>(p), of_channel<n>(p).
struct ChannelNeeds {
  int of_query = 0;    // of the query [B, H, T, of_query C] with C channels: one number of all, then the next
  int of_key = 0;      // of the key [B, G, keys, of_key C]
  int of_channel = 0;  // of the channel itself [of_channel C], constant

  constexpr bool any() const { return of_query + of_key > 0; }
};

struct PairNeeds {
  bool distance = false;  // p.distance: i - j; where a text is generated in a window its first keys then all stay
  bool scan = false;      // gate is summed: p.sum
  bool own = true;        // the sum takes the gate of key j itself in; else it ends at j + 1
  bool down = false;      // down_gate is summed over the queries before i: p.down
  bool adds = false;  // logit is p.s plus what the others make, and nothing else reads p.s: it may have a product in it
  bool biased = false;   // p.s has in it what other encodings of a sum add; else that is added to the logit
  bool other = false;    // p.other: scale r_i.G_j of operands of their own; s where a call has none
  bool spends = false;   // l = ... - sum, never above 0: e^-sum is what keys up to j leave over; for the normaliser exp
  bool table = false;    // p.entry: of the query's table [B, H, T, P+1], any P
  bool settles = false;  // no gate is below 0, p.other is for gates alone, and p.sum for the place of p.entry, which it
                         // is: from where it passes P on, keys to the left need no gates
  bool unit_gates = false;     // of one that settles: no gate is above 1, and place n is reached by n keys at least
  bool knots = false;          // the table is [B, H, T, 2 N] of N knots: v_i[0], r_i[0], v_i[1], ...
  bool adds_entry = false;     // logit is p.s + p.entry: who multiplies logits multiplies the table
  int rows = 0;                // row<n>(p), n < rows: numbers of the query [B, H, T, rows]
  int heads = 0;               // head<n>(p), n < heads: numbers of the head [H, heads]
  ChannelNeeds channels = {};  // p.terms: the sum of `term` over the channels of a query and a key
};

// A policy compiled for a backend of CUDA kernels; of calls in f32 and f64.
struct PairKernels {
  void (*forward)(const AttentionCall& call);
  // device: the DeviceCall of that backend, in the type of the call.
  void (*backward_rows)(const AttentionCall& call, const void* device);
  void (*backward_keys)(const AttentionCall& call, const void* device);
};

// A policy as kernels and the composed form take it; autograd/pair.hpp makes one.
struct PairPolicy {
  std::string_view name;
  PairNeeds needs;
  // For the CPU, with vectors that any has, and for x86-64-v4 and v3; null: not compiled.
  const struct PairLoops *loops, *loops_v4, *loops_v3;
  const PairKernels *cuda_host, *cuda;  // null: not compiled
  const struct PairOnTensors* on_tensors;
  std::uint32_t inputs;  // what logits have a derivative by (core/attention/pair_inputs.hpp)
};

}  // namespace tally
