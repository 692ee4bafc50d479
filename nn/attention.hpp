// Multi-head causal self-attention (arXiv 1706.03762, section 3.2) with a position encoding:
//   q, k, v = projections of x, heads as strided views [B, H, T, d]
//   o = attention of q, k, v with what the encoding brings (nn/composed.hpp), for each group of heads by itself
//   y = output projection of the heads side by side
#pragma once

#include <vector>

#include "nn/dropout.hpp"
#include "nn/encoding.hpp"
#include "nn/linear.hpp"

namespace tally {

// How attention is computed: in tiles, never storing T x T numbers, or materialised by ordinary operations. What the
// tiles cannot do is materialised in any case: a trace, weights of an encoding's own.
enum class AttentionForm { tiled, composed };

// What came before, while a text is generated: x, q, k, v hold the new tokens, the first of which is at place `first`;
// the layer keeps what later ones need of them.
struct Earlier {
  std::int64_t first = 0;
  KvCache* cache = nullptr;
};

// Children: query, key, value, output, each [D, D], with bias or none; head h owns the rows h d .. h d + d-1 of the
// first three.
class Attention final : public Module {
 public:
  // dropout: rate on the attention weights. output_gain: of output's weight. `heads` divides `width`.
  Attention(const Initializer& start, std::int64_t width, std::int64_t heads, double dropout, double output_gain,
            AttentionForm form = AttentionForm::tiled, WithBias bias = WithBias::yes);
  // x [B, T, D] -> the same shape
  Tensor forward(const Tensor& x, const LayerEncoding& encoding, const Pass& pass, const Earlier& earlier = {}) const;
  // What lies between the projections: q, k, v [B, H, T, d] -> o of the same shape
  Tensor attend(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v, const LayerEncoding& encoding,
                const Pass& pass, const Earlier& earlier = {}) const;
  // Whether new tokens can be computed by themselves from what was kept of earlier ones (Earlier). Not where attention
  // is materialised: in composed form, with weights of an encoding's own, or a whole attention of its own.
  bool continues(const LayerEncoding& encoding) const;

 private:
  std::int64_t heads_;
  AttentionForm form_;
  Linear query_, key_, value_, output_;
  std::vector<Dropout> dropout_;  // of the weights, by the first head of a group
};

// [B, T, D] as [B, H, T, d] and back. The first is a view of its argument.
Tensor split_heads(const Tensor& x, std::int64_t heads);
Tensor merge_heads(const Tensor& x);

}  // namespace tally
