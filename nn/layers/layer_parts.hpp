// Parts of an attention layer that any encoding may add: call shifts, convolutions and norms in its hook `rotate` or
// `score`, the gate in `finish`.
#pragma once

#include <string>
#include <string_view>

#include "nn/encoding/encoding.hpp"

namespace tally {

// Throws Error for a head width of 1: a norm over each head would leave only a sign.
void check_normed_heads(const EncodingSetup& setup, std::string_view what);

// Rows mixed with the previous token's rows, per head (arXiv 2503.02130, section 4; RWKV's token shift):
//   y_t = a_t y0_{t-1} + (1-a_t) y0_t,  a_t = sigmoid(w.x_t),  y0 the rows as given, 0 before token 0
// Parameters: <name>.weight [heads, D], initialised like a linear layer.
class TokenShift {
 public:
  TokenShift(const EncodingSetup& setup, std::string_view name, std::int64_t heads);
  // rows [B, heads, T, d] -> the same shape
  Tensor operator()(const Tensor& rows, const AttentionInput& in) const;

 private:
  std::string name_;
  Tensor weight_;
};

// Causal depthwise convolution over tokens: y_t = sum_m weight[.., m] x_{t-M+1+m}, so that the last tap is for the
// token itself; 0 before token 0. all [B, heads, keys, width]: the cached rows of these and earlier tokens; weight
// [heads, width, M]. Returns the last T tokens only, [B, heads, T, width].
Tensor convolved(const Tensor& all, const Tensor& weight, std::int64_t queries);

// y = x / sqrt(mean(x²) + 1e-6) * w_h over each head separately (RMSNorm, arXiv 1910.07467).
// Parameters: <name>.weight [heads, d] ones.
class HeadNorm {
 public:
  HeadNorm(const EncodingSetup& setup, std::string_view name, std::int64_t heads);
  // x [B, heads, T, d] -> the same shape
  Tensor operator()(const Tensor& x) const;
  static Tensor apply(const Tensor& x, const Tensor& weight);
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

// Norms of q [B, H, T, d] and k [B, G, T, d], over each head separately.
// Parameters: query-norm.weight [H, d], key-norm.weight [G, d].
class QueryKeyNorm {
 public:
  explicit QueryKeyNorm(const EncodingSetup& setup);
  void operator()(Tensor& q, Tensor& k) const;

 private:
  HeadNorm query_, key_;
};

// y = o * sigmoid(W x).
// Parameters: <name>.weight [H d, D], initialised like a linear layer.
class OutputGate {
 public:
  OutputGate(const EncodingSetup& setup, std::string_view name);
  // output [B, H, T, d] -> the same shape
  Tensor operator()(const Tensor& output, const AttentionInput& in) const;
  // The gate applied to norm(o); backward recomputes the intermediates.
  Tensor of_normed(const Tensor& output, const HeadNorm& norm, const AttentionInput& in) const;

 private:
  std::int64_t heads_;
  Tensor weight_;
};

}  // namespace tally
