// What joins the attention scores s_ij = q_i.k_j / sqrt(d): at most one scan and any number of biases, as tensors with
// gradients. Attention knows these shapes and never an encoding.
//
// B batch, H heads, T length, P largest position; query i, key j <= i.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// l_ij += z_i at position p_ij, linearly interpolated, where p_ij = sum_{k=j..i} g_ik and g = sigmoid(s), or
// sigmoid(q.G / sqrt(d)) with an own gate operand G.  CoPE, arXiv 2405.18719.
struct ContextualTable {
  Tensor z;             // [B, H, T, P+1]
  Tensor gate_operand;  // G [B, H, T, d], undefined: gates from the score itself
};
using Scan = std::variant<ContextualTable>;

// l_ij += bias_h[i-j]
struct Toeplitz {
  Tensor bias;  // [H, distances]
};
// l_ij += z_i[i-j]
struct RowToeplitz {
  Tensor z;          // [B, H, T, W]
  bool cap = false;  // distances >= W read row W-1; else they get nothing
};
// l_ij += bias_ij; costs T x T memory
struct Dense {
  Tensor bias;  // [B or 1, H or 1, T, T]
};
using Bias = std::variant<Toeplitz, RowToeplitz, Dense>;

struct Score {
  std::optional<Scan> scan;
  std::vector<Bias> biases;

  // Throws Error when there is one already: each scan defines what the running sum along the keys means.
  void set_scan(Scan value);
};

}  // namespace tally
