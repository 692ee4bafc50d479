// Multi-head causal self-attention (arXiv 1706.03762, section 3.2) with a position encoding:
//   q, k, v = projections of x, heads as strided views [B, H, T, d], of k and v [B, G, T, d]: query head h has the keys
//             and values of key head floor(h G/H) (grouped queries, arXiv 2305.13245); q and k may be normed (QkNorm)
//   o = attention of q, k, v with the hooks of the encoding (nn/composed.hpp), for each group of heads separately
//   y = output projection of the heads side by side
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/dropout.hpp"
#include "nn/encoding.hpp"
#include "nn/linear.hpp"
#include "nn/norm.hpp"

namespace tally {

// How attention is computed: in tiles, never storing T x T numbers, or materialised by ordinary operations. What the
// tiles cannot do is materialised in any case: a trace, weights of an encoding's own.
enum class AttentionForm { tiled, composed };

// What came before, while a text is generated: x, q, k, v hold the new tokens, the first of which is at index `first`;
// the layer keeps what later ones need of them.
struct Earlier {
  std::int64_t first = 0;
  KvCache* cache = nullptr;
};

// Of one layer.
struct HeadSizes {
  static HeadSizes of(const ModelOptions& model);

  std::int64_t width = 0;       // D
  std::int64_t heads = 0;       // H
  std::int64_t key_heads = 0;   // G, divides H
  std::int64_t head_width = 0;  // d
};

// Norm of the projected queries and of the projected keys. It keeps the scores bounded however large the
// projections grow (arXiv 2302.05442, section 2). Rotations and everything else that an encoding computes from q and k
// come after it.
struct QkNorm {
  static QkNorm of(const ModelOptions& model);

  // none
  // head: over the d numbers of each head, with one weight [d] for all heads (ViT-22B, LayerNorm; Qwen3, RMSNorm)
  // full: over all heads together, with weights [H d] and [G d] (OLMo 2, arXiv 2501.00656, RMSNorm)
  std::string over = "none";
  std::string kind = "layer";  // layer, rms
  double eps = 0;              // 0 for the usual one
};

// Children: query [H d, D], key, value [G d, D], output [D, H d], with bias or none; head h owns the rows h d .. h d +
// d-1 of the first three. With a QkNorm also query_norm and key_norm.
class Attention final : public Module {
 public:
  // dropout: rate on the attention weights. output_gain: of output's weight.
  Attention(const Initializer& start, const HeadSizes& sizes, double dropout, double output_gain,
            AttentionForm form = AttentionForm::tiled, WithBias bias = WithBias::yes, const QkNorm& norm = {});
  // x [B, T, D] -> the same shape, onto which it is added, if that is there
  Tensor forward(const Tensor& x, const LayerEncoding& encoding, const Pass& pass, const Earlier& earlier = {},
                 Tensor onto = {}) const;
  // Who reads x, and q, k and v: products alone, where attention is tiled and no encoding computes with them; x may be
  // what a norm wrote for them then.
  ReadBy readers(const LayerEncoding& encoding, const Pass& pass, const Earlier& earlier = {}) const;
  // The attention itself, between the projections (or the norms of q and k) and the output projection:
  // q [B, H, T, d], k and v [B, G, T, d] -> o as q
  Tensor attend(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v, const LayerEncoding& encoding,
                const Pass& pass, const Earlier& earlier = {}) const;
  // Whether new tokens can be computed by themselves from what was kept of earlier ones (Earlier). Not where attention
  // is materialised: in composed form, with weights of an encoding's own, or a whole attention of its own.
  bool continues(const LayerEncoding& encoding) const;

 private:
  std::int64_t heads_, key_heads_;
  AttentionForm form_;
  Linear query_, key_, value_, output_;
  bool norm_by_head_;
  std::unique_ptr<Norm> query_norm_, key_norm_;  // null without
  std::vector<Dropout> dropout_;                 // of the weights, by the first head of a group
};

// [B, T, H d] as [B, H, T, d] and back. The first is a view of its argument.
Tensor split_heads(const Tensor& x, std::int64_t heads);
Tensor merge_heads(const Tensor& x);
// [B, G, T, d] -> [B, H, T, d]: each head of keys, or values, for every query head that shares it; a copy unless G = H.
Tensor for_query_heads(const Tensor& x, std::int64_t heads);

}  // namespace tally
