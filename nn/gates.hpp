// Gates that several encodings share.
#pragma once

#include <string>
#include <string_view>

#include "nn/encoding.hpp"

namespace tally {

// What contextual positions (CoPE and its kin) are counted from: g_ij = sigmoid(s_ij), or sigmoid(q_i.G_j / sqrt(d))
// with gate keys G of their own.
struct ContextualGateOptions {
  static constexpr auto beside_rotations = query_beside_rotations;
  std::string source = "keys";
  bool rotated_query = false;

  // Options "gates" and "rotated-query".
  void visit(OptionVisitor& visitor);
  // For the `validate` of an encoding that multiplies q with nothing else than keys, of the score and of gates.
  void refuse_idle_query(std::string_view encoding) const;
};

// Parameters, with source sep-keys: gate.weight [G d, D], gate.bias [G d] (where k has one), as that of k.
class ContextualGates {
 public:
  ContextualGates(const EncodingSetup& setup, const ContextualGateOptions& options);

  Gates operator()(const AttentionInput& in) const;
  // q [B, H, T, d] of all products but the score.
  const Tensor& query(const AttentionInput& in) const { return in.query(rotated_query_); }

 private:
  bool from_values_ = false;
  bool rotated_query_ = false;
  std::int64_t key_heads_ = 0;
  Tensor weight_, bias_;  // sep-keys
};

// The forget gates of FoX (arXiv 2503.02130, equations 4 and 6): what a token leaves of all that was before it.
//   log f_t = log sigmoid(w_f.x_t + b_f) per head,  L_t = sum_{u<=t} log f_u,  l_ij = s_ij + (L_i - L_j)
// Parameters: forget.weight [H, D] N(0, 0.02²), forget.bias [H] zeros, or as open as said.
class ForgetGates {
 public:
  // sign: of w_f.x_t + b_f, 1 or -1; open: b_f at the start
  explicit ForgetGates(const EncodingSetup& setup, double sign = 1, double open = 0);
  RowColumn operator()(const AttentionInput& in) const;

 private:
  double sign_;
  Tensor weight_, bias_;
};

}  // namespace tally
