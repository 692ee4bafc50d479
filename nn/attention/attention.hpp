// Multi-head causal self-attention (arXiv 1706.03762, section 3.2) with a position encoding:
//   q, k, v = projections of x, as strided views with heads: q [B, H, T, d], k and v [B, G, T, d]. Query head h uses
//             key head floor(h G/H) (grouped queries, arXiv 2305.13245). q and k may be normed.
//   o = attention of q, k, v with the hooks of the encoding (nn/attention/composed.hpp), for each group of heads
//       separately
//   y = output projection of the concatenated heads
#pragma once

#include <memory>
#include <vector>

#include "nn/encoding/encoding.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/norm.hpp"

namespace tally {

// The state of generation. x, q, k and v hold only the new tokens, which begin at index `first`. The layer appends to
// the cache.
struct KVContext {
  std::int64_t first = 0;
  KvCache* cache = nullptr;
};

// Children: query [H d, D], key, value [G d, D], output [D, H d], with or without bias. Head h owns the rows h d .. h d
// + d-1 of the first three. ModelOptions::qk_norm adds query_norm and key_norm of the projected queries and keys. They
// keep the scores bounded for projections of any size (arXiv 2302.05442, section 2). Rotations and all other
// computations of an encoding with q and k come after them.
//   head   over the d numbers of each head, with one weight [d] for all heads (ViT-22B, LayerNorm; Qwen3, RMSNorm)
//   full   over all heads together, with weights [H d] and [G d] (OLMo 2, arXiv 2501.00656, RMSNorm)
//
// Fused (tiled) attention never stores T x T numbers; reference (composed) attention materialises them with ordinary
// operations. Features that the kernels lack always use the latter: a trace, and an encoding's custom weights.
class Attention final : public Module {
 public:
  // output_gain: gain of output's initial weight.
  Attention(const Initializer& start, const ModelOptions& model, double output_gain = 1);
  // x [B, T, D] -> the same shape, plus the residual if it is defined
  Tensor forward(const Tensor& x, const LayerEncoding& encoding, const ForwardContext& pass,
                 const KVContext& earlier = {}, Tensor residual = {}) const;
  // The precision that x, q, k and v need: matmul_input if attention is fused and no encoding computes with them.
  OutputPrecision input_precision(const LayerEncoding& encoding, const ForwardContext& pass,
                                  const KVContext& earlier = {}) const;
  // The attention itself, between the projections (or the norms of q and k) and the output projection:
  // q [B, H, T, d], k and v [B, G, T, d] -> o as q
  Tensor attend(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v, const LayerEncoding& encoding,
                const ForwardContext& pass, const KVContext& earlier = {}) const;
  // Whether new tokens can be computed incrementally from the KV cache (KVContext). Not possible if attention is
  // materialised: in the composed form, or if an encoding has custom weights or replaces attention as a whole.
  bool continues(const LayerEncoding& encoding) const;

 private:
  // q, k and v [B, H, T, d] of x.
  std::vector<Tensor> project(const Tensor& x, const LayerEncoding& encoding, const ForwardContext& pass,
                              OutputPrecision precision) const;

  std::int64_t heads_, key_heads_;
  bool composed_;
  StackedParameters stacked_;  // of query, key and value, on a GPU if all have the same shape and no norms
  Linear query_, key_, value_, output_;
  bool norm_by_head_;
  std::unique_ptr<Norm> query_norm_, key_norm_;  // null without qk_norm
  std::vector<Dropout> dropout_;                 // of attention weights, indexed by the first head of a group
};

// [B, T, H d] as [B, H, T, d] and back. The first is a view of its argument.
Tensor split_heads(const Tensor& x, std::int64_t heads);
Tensor merge_heads(const Tensor& x);

}  // namespace tally
