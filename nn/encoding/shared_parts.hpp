// Parts that several encodings share: gates, slopes of heads, and the value that the leftover mass attends to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/encoding/encoding.hpp"

namespace tally {

// The gates of contextual positions (CoPE and its variants): g_ij = sigmoid(s_ij), or sigmoid(q_i.G_j / sqrt(d)) with
// separate gate keys G.
struct ContextualGateOptions {
  std::string source = "keys";
  bool rotated_query = false;

  // Options "gates" and "rotated-query". only_in_gates: the flag affects only gates, because the encoding has no other
  // vectors to multiply q with.
  void visit(OptionVisitor& visitor, bool only_in_gates = false);
};

// Parameters, with source sep-keys: gate.weight [G d, D], gate.bias [G d] (if k has a bias), initialised as in k.
class ContextualGates {
 public:
  ContextualGates(const EncodingSetup& setup, const ContextualGateOptions& options);

  Gates operator()(const AttentionInput& in) const;
  // q [B, H, T, d] for all matmuls except the score.
  const Tensor& query(const AttentionInput& in) const { return in.query(rotated_query_); }

 private:
  bool from_values_ = false;
  bool rotated_query_ = false;
  std::int64_t key_heads_ = 0;
  Tensor weight_, bias_;  // sep-keys
};

// The forget gates of FoX (arXiv 2503.02130, equations 4 and 6): the share of the earlier tokens that a token leaves.
//   log f_t = log sigmoid(w_f.x_t + b_f) per head,  L_t = sum_{u<=t} log f_u,  l_ij = s_ij + (L_i - L_j)
// Parameters: forget.weight [H, D] N(0, 0.02²), forget.bias [H], starting at `open`, 0 by default.
class ForgetGates {
 public:
  // sign: of w_f.x_t + b_f, 1 or -1; open: b_f at the start
  explicit ForgetGates(const EncodingSetup& setup, double sign = 1, double open = 0);
  RowColumn operator()(const AttentionInput& in) const;

 private:
  double sign_;
  Tensor weight_, bias_;
};

// x with zeros along an axis, `before` before its elements and `behind` after them.
Tensor padded(const Tensor& x, int axis, std::int64_t before, std::int64_t behind);

// Slopes of heads for attention with linear biases (ALiBi, arXiv 2108.12409, section 3), h = 1..H:
//   m_h = 2^(-8h/H) for H a power of two; else, with H0 the largest power of two below H, the H0 slopes, then the 1st,
//   3rd, 5th, ... of the 2 H0 slopes (the released code's rule)
std::vector<double> alibi_slopes(std::int64_t heads);

// The value that gets the leftover mass of a row, for encodings that replace the softmax by another SoftmaxRule.
struct RemainderOption {
  std::string value = "drop";

  // Option "remainder".
  void visit(OptionVisitor& visitor, std::string_view what);
};

// Parameters, with bias: remainder [H, d] zeros.
class Remainder {
 public:
  Remainder(const EncodingSetup& setup, const RemainderOption& option);
  // r [B, H, T, d]: nothing, the token's own value as it is in the sum, or a learned vector for each head
  Tensor operator()(const AttentionInput& in) const;

 private:
  bool to_value_;
  Tensor bias_;
};

}  // namespace tally
