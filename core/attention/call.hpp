// The arguments of one call of fused attention, as plain views: the score shapes of autograd/score.hpp and their
// gradients. The CPU and the CUDA kernels share them. Kernels depend on these shapes, never on an encoding.
//
// B batch, H heads of queries, G of keys (core/attention/heads.hpp), T queries, K keys (the queries are the last T of K
// tokens), d, e widths of k, v. Query t has index i = K - T + t and attends to keys j <= i, except those that
// AttentionMask masks.
#pragma once

#include <cstdint>

#include "core/attention/mask.hpp"
#include "core/attention/operands.hpp"
#include "core/math/random.hpp"
#include "core/view.hpp"

namespace tally {

struct ScoreMod;

// A score modification (core/attention/score_mod.hpp), most often with a running sum along the keys.
struct AttentionScan : ScoreModOperands<View> {
  const ScoreMod* mod = nullptr;  // null: none
};

// l_ij += scale query_i . key_n for the distance n = i - j. Distances >= W use the last key with cap, else add nothing.
// CUDA kernels do not implement it and get a row_toeplitz bias instead.
struct AttentionDistance : DistanceOperands<View> {
  bool cap = false;
};

// How the logits of a row become its weights: a_ij = n(l_ij) / Z_i,  Z_i = z0 + sum_j m(l_ij).
struct AttentionNormaliser : NormaliserOperands<View> {
  enum class Kind : std::uint8_t {
    softmax,   // n = m = e^l; z0 = e^c with a sink c, else 0
    sigmoid,   // n = sigmoid(l - offset), Z = 1 (arXiv 2409.04431)
    softpick,  // n = relu(e^l - 1), m = |e^l - 1|, z0 = 1e-8 (arXiv 2504.20966)
    exp        // n = e^l, Z = 1; requires logits <= 0
  };
  Kind kind = Kind::softmax;
  double offset = 0;  // of sigmoid
};

struct AttentionBias : BiasOperands<View> {
  enum class Kind : std::uint8_t {
    toeplitz,      // l += values_h[i-j];                     values [H,W], W >= K
    row_column,    // l += values_i + column_j, both f64;     values [B,H,T], column [B,H,K]; one may be null
    row_toeplitz,  // l += values_i[i-j]; distances >= W: the last with cap, else 0;  values [B,H,T,W]
    dense          // l += values_ij;                         values [B,H,T,K]
  };
  Kind kind = Kind::toeplitz;
  bool cap = false;
};

// Softmax statistics that forward saves for backward: AttentionCall::softmax_statistics.
inline constexpr std::int64_t statistics_per_row = 3;

// Inputs may have any strides, 0 on broadcast axes.
struct AttentionCall {
  View q, k, v;  // [B,H,T,d], [B,G,K,d], [B,G,K,e]
  double scale = 1;
  AttentionMask mask;
  AttentionScan scan;
  AttentionDistance distance;
  AttentionNormaliser softmax_rule;
  const AttentionBias* biases = nullptr;  // in host memory
  int bias_count = 0;
  // Weights are 0 with probability `dropout`, else a / (1 - dropout). The stream's element of a weight is its index in
  // [B,H,T,K], as in the `dropout` kernel on materialised weights. If the call is a part of a text of L =
  // `dropout_tokens`, the index is that in [B,H,L,L]. Element 0 of the stream is then the pair of this part's first key
  // with itself.
  double dropout = 0;
  RandomStream dropout_stream;
  std::int64_t dropout_tokens = 0;  // 0: the call is the whole text

  // Results.
  View output;              // [B,H,T,e], any strides; may be bf16 on the CPU
  View softmax_statistics;  // [B,H,T,3] dense: the shift M of its exponents, e^M / Z, and the leftover mass
  View scan_checkpoints;    // running sums at the tiles' edges, attention_prefix_sums elements; null without a scan

  std::int64_t batch() const { return q.shape[0]; }
  std::int64_t heads() const { return q.shape[1]; }
  std::int64_t queries() const { return q.shape[2]; }
  std::int64_t keys() const { return k.shape[2]; }

  // The pair of query t and the first key is element (head dropout_rows() + dropout_first_row() + t)
  // dropout_columns(), with heads counted over all sequences.
  std::int64_t dropout_rows() const { return dropout_tokens > 0 ? dropout_tokens : queries(); }
  std::int64_t dropout_first_row() const { return dropout_tokens > 0 ? keys() - queries() : 0; }
  std::int64_t dropout_columns() const { return dropout_tokens > 0 ? dropout_tokens : keys(); }
};

// The gradient of each operand, under the operand's name; null if it is not needed or the operand takes none. Gradients
// are written, not added to. They may have any strides, but gradients of shared operands are dense. On the CPU the
// gradients of q, k and v may be bf16 with contiguous columns. There distance.query may be the view of q, and its
// gradient is then added to q's.
struct AttentionGradients : AttentionOperandsOf<View> {
  View d_output;                               // given
  const BiasOperands<View>* biases = nullptr;  // f64 for row_column
};

}  // namespace tally
