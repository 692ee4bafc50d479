// The trained models: a sequence model computes the logits of the next token from the tokens; its options, and the
// choice between the kinds of model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/encoding/random_positions.hpp"
#include "nn/forward_context.hpp"
#include "nn/module.hpp"

namespace tally {

// Logits of a batch larger than this are computed strip by strip (SequenceModel::loss).
inline constexpr std::int64_t most_logit_bytes = std::int64_t{64} << 20;

struct ModelOptions final : OptionsOf<ModelOptions> {
  std::string kind = "transformer";  // transformer, lstm
  std::int64_t layers = 4;
  std::int64_t width = 256;             // D
  std::int64_t heads = 4;               // H, divides the width if head_width is not given
  std::int64_t kv_heads = 0;            // G, heads of keys and values, divides H; 0 for H
  std::int64_t head_width = 0;          // d; 0 for D/H
  std::int64_t hidden = 0;              // width of the MLP's hidden layer; 0: 4 D
  std::string norm = "layer";           // layer, rms
  double norm_eps = 0;                  // 0 for the usual one of the norm
  std::string norm_place = "pre";       // pre, post
  std::string residual = "sequential";  // sequential, parallel
  std::string activation = "gelu";      // gelu, gelu-tanh, relu, swiglu
  double dropout = 0;                   // on embeddings, attention weights, sublayer outputs and the MLP's hidden layer
  bool bias = true;                     // of the linear layers
  bool tied = false;                    // output projection = token embedding
  bool final_norm = true;
  std::string qk_norm = "none";     // none, head, full: norm of queries and keys (nn/attention/attention.hpp)
  std::string attention = "tiled";  // tiled, composed
  std::string init = "gpt2";        // gpt2, fan-in, authors

  void visit(OptionVisitor& visitor) override;
  // Throws Error when the sizes do not fit together.
  void validate() const override;

  // G, d and the width of the MLP's hidden layer, with the defaults derived from H and D.
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t width_of_head() const { return head_width > 0 ? head_width : width / heads; }
  std::int64_t width_of_hidden() const { return hidden > 0 ? hidden : 4 * width; }
  bool is_transformer() const { return kind == "transformer"; }
  // Names of the options that this kind does not use.
  std::vector<std::string> idle() const;
};

// The state of a model during generation, for one text or B texts at once. A copy is independent.
struct GenerationState {
  std::int64_t length = 0;      // tokens
  std::vector<KvCache> layers;  // one KV cache for each layer
  // i32 [B, length] if every step recomputes all rows, or if a later step may (Encoding::same_up_to);
  // else undefined
  Tensor tokens;
};

class SequenceModel : public Module {
 public:
  // Drawn in evaluations (tasks/evaluation/evaluate.hpp), which have consecutive positions without it.
  std::optional<RandomPositions> evaluation_positions;

  // The device of the parameters.
  Device device() const { return head().device(); }
  std::int64_t vocabulary() const { return head().size(0); }
  // tokens i32 [B, T], on any device -> logits [B, T, V] = hidden(tokens) headᵀ
  Tensor forward(const Tensor& tokens, const ForwardContext& pass = {});
  // token_cross_entropy(forward(tokens), ...): the loss of these tokens' successors. Logits of more than 64 MiB are
  // never materialised as a whole.
  TokenLoss loss(const Tensor& tokens, const Tensor& targets, const Tensor& mask, const Tensor& weight,
                 const ForwardContext& pass = {});
  // The input of the output projection: tokens i32 [B, T], on any device -> [B, T, D]. Errors name the layer as they
  // propagate: "in blocks.2.attention: ...". Layers without attention leave nothing in a trace.
  virtual Tensor hidden(const Tensor& tokens, const ForwardContext& pass = {}) = 0;
  // The weight [V, D] of the output projection.
  virtual const Tensor& head() const = 0;
  // The logits [B, T, V] of new tokens [B, T] only, which follow the tokens in `state` (none at first), without
  // gradients.
  virtual Tensor step(const Tensor& tokens, GenerationState& state) = 0;
  // Throws Error naming the limit when sequences of this length are too long for it.
  virtual void check_length(std::int64_t length) const { (void)length; }
  // The most learned rows that an encoding looks up by position or distance (Encoding::rows_by_position).
  virtual std::int64_t rows_by_position() const { return 0; }

  // Multiply-adds of the weight matrices count these parameters once per token (embedding tables not included).
  std::int64_t matrix_parameter_count() const;
};

// Throws Error when the options do not fit together, or the encodings cannot act in such a model.
void check_model(const ModelOptions& options, const EncodingChoice& encoding);

// The model of `options.kind`. max_length: T_max of learned tables. Start values from `seed`. Throws Error for sizes
// that do not fit.
std::unique_ptr<SequenceModel> make_model(const ModelOptions& options, const EncodingChoice& encoding,
                                          std::int64_t vocabulary, std::int64_t max_length, std::uint64_t seed,
                                          DType dtype = DType::f32, Device device = {});

}  // namespace tally
