// What one call of tiled attention is given, as plain views: the score shapes of autograd/score.hpp and their
// gradients. Shared by the CPU and the CUDA kernels, which know these shapes and never an encoding.
//
// B batch, H heads of queries, G of keys (core/attention/heads.hpp), T queries, K keys (the queries are the last T of K
// tokens), d, e widths of k, v. Query t has index i = K - T + t and sees keys j <= i, of which Visible may leave some
// out.
#pragma once

#include <cstdint>

#include "core/attention/operands.hpp"
#include "core/attention/visible.hpp"
#include "core/random.hpp"
#include "core/view.hpp"

namespace tally {

struct PairPolicy;

// What a policy makes of the scores (core/attention/pair.hpp), most often by way of a running sum along the keys.
struct AttentionScan : PolicyOperands<View> {
  const PairPolicy* policy = nullptr;  // null: none
};

// l_ij += scale query_i . key_n of the distance n = i - j; beyond W the last with cap, else nothing. The kernels of
// CUDA have none: to them it is a bias, row_toeplitz.
struct AttentionDistance : DistanceOperands<View> {
  bool cap = false;
};

// How the logits of a row become its weights: a_ij = n(l_ij) / Z_i,  Z_i = z0 + sum_j m(l_ij).
struct AttentionNormaliser : NormaliserOperands<View> {
  enum class Kind : std::uint8_t {
    softmax,   // n = m = e^l; z0 = e^c with a sink c, else 0
    sigmoid,   // n = sigmoid(l - offset), Z = 1 (arXiv 2409.04431)
    softpick,  // n = relu(e^l - 1), m = |e^l - 1|, z0 = 1e-8 (arXiv 2504.20966)
    exp        // n = e^l, Z = 1: of logits that are never above 0
  };
  Kind kind = Kind::softmax;
  double offset = 0;  // of sigmoid
};

struct AttentionBias : BiasOperands<View> {
  enum class Kind : std::uint8_t {
    toeplitz,      // l += values_h[i-j];                     values [H,W], W >= K
    row_column,    // l += values_i + column_j, both f64;     values [B,H,T], column [B,H,K]; one may be null
    row_toeplitz,  // l += values_i[i-j], beyond W the last with cap, else nothing;  values [B,H,T,W]
    dense          // l += values_ij;                         values [B,H,T,K]
  };
  Kind kind = Kind::toeplitz;
  bool cap = false;
};

// Numbers a row that forward leaves for backward: AttentionCall::row_statistics.
inline constexpr std::int64_t statistics_per_row = 3;

// Inputs may have any strides, 0 on broadcast axes.
struct AttentionCall {
  View q, k, v;  // [B,H,T,d], [B,G,K,d], [B,G,K,e]
  double scale = 1;
  Visible visible;
  AttentionScan scan;
  AttentionDistance distance;
  AttentionNormaliser normaliser;
  const AttentionBias* biases = nullptr;  // of host memory
  int bias_count = 0;
  // Weights are 0 with probability `dropout`, else a / (1 - dropout), by the stream's element of their index in
  // [B,H,T,K]: those of the `dropout` kernel on the weights written out. Where the call is a part of a text of
  // `dropout_tokens` L, with as many queries as keys, it is their index in that one's [B,H,L,L], and element 0 of the
  // stream is the pair of the first key here with itself.
  double dropout = 0;
  RandomStream dropout_stream;
  std::int64_t dropout_tokens = 0;  // 0: the call is no part

  // Results.
  View output;          // [B,H,T,e], any strides; of the CPU it may be bf16
  View row_statistics;  // [B,H,T,3] dense: the shift M of its exponents, e^M / Z, and what is left over
  View prefix_sums;     // of the scan at the tiles' edges, attention_prefix_sums elements; null without a scan

  std::int64_t batch() const { return q.shape[0]; }
  std::int64_t heads() const { return q.shape[1]; }
  std::int64_t queries() const { return q.shape[2]; }
  std::int64_t keys() const { return k.shape[2]; }

  // The pair of query t and the first key, of a head counted over all sequences, is element
  // (head dropout_rows() + dropout_first_row() + t) dropout_columns().
  std::int64_t dropout_rows() const { return dropout_tokens > 0 ? dropout_tokens : queries(); }
  std::int64_t dropout_first_row() const { return dropout_tokens > 0 ? keys() - queries() : 0; }
  std::int64_t dropout_columns() const { return dropout_tokens > 0 ? dropout_tokens : keys(); }
};

// What is wanted of each operand, under its name: gradients are written, not added to; any strides but of shared ones,
// which are dense. A null one is not wanted. Those of numbers that take none are null. On the CPU those of q, k and v
// may be bf16, with columns next to each other, and distance.query may be the view of q: its gradient is then part of
// that of q.
struct AttentionGradients : AttentionOperandsOf<View> {
  View d_output;                               // given
  const BiasOperands<View>* biases = nullptr;  // of a row_column: f64
};

}  // namespace tally
