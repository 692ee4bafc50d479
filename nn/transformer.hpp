// The transformer: token embedding, blocks of causal attention and MLP with residuals, final norm, output projection.
//   pre-norm:  x += attention(norm(x));  x += mlp(norm(x))
//   post-norm: x = norm(x + attention(x)); x = norm(x + mlp(x))
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/encoding_choice.hpp"
#include "nn/module.hpp"
#include "nn/pass.hpp"

namespace tally {

struct ModelOptions final : OptionsOf<ModelOptions> {
  std::int64_t layers = 4;
  std::int64_t width = 256;         // D
  std::int64_t heads = 4;           // H, divides the width
  std::int64_t hidden = 0;          // of the MLP; 0 for 4 D
  std::string norm = "layer";       // layer, rms
  std::string norm_place = "pre";   // pre, post
  std::string activation = "gelu";  // gelu, relu, swiglu
  double dropout = 0;               // on embeddings, attention weights, sublayer outputs and the MLP's hidden layer
  bool bias = true;                 // of the linear layers
  bool tied = false;                // output projection = token embedding
  bool final_norm = true;
  std::string attention = "tiled";  // tiled, composed
  std::string init = "gpt2";        // gpt2, fan-in, authors

  void visit(OptionVisitor& visitor) override;
  // Throws Error when the sizes do not fit together.
  void validate() const override;
};

// What a model has seen of a text, or of B texts at once, while it is generated. A copy goes its own way.
struct GenerationState {
  std::int64_t length = 0;      // tokens
  std::vector<KvCache> layers;  // keys, values and what encodings need of earlier tokens
  Tensor tokens;                // i32 [B, length] where all is computed anew with every step, else undefined
};

class Transformer : public Module {
 public:
  // max_length: T_max of learned tables. Start values from `seed`. Throws Error for sizes that do not fit.
  Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
              std::int64_t max_length, std::uint64_t seed, DType dtype = DType::f32, Device device = {});
  // The same with parameters that `start` gives; their type and device are its own.
  Transformer(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
              std::int64_t max_length, const Initializer& start);
  ~Transformer() override;

  // That of the parameters.
  Device device() const;
  std::int64_t vocabulary() const;
  // tokens i32 [B, T], on any device -> logits [B, T, V]. Errors name the layer on their way up: "in
  // blocks.2.attention: ...".
  Tensor forward(const Tensor& tokens, const Pass& pass = {});

  // The same for tokens [B, T] that come after those which `state` has seen (none at first), with no gradients: logits
  // [B, T, V] of these alone. Only their rows are computed; where an encoding cannot do that (weights or a whole
  // attention of its own) or the model's attention is in composed form, all is computed anew.
  Tensor step(const Tensor& tokens, GenerationState& state);

  // What acts on a layer, from 0.
  const LayerEncoding& encoding(std::int64_t layer) const;
  // Whether some gradients follow a rule of an encoding's own and are no derivatives
  // (EncodingTraits::straight_through).
  bool straight_through() const;
  // After each update of the parameters: some encodings keep theirs within a range (Encoding::project).
  void project_parameters() const;

  // Multiply-adds of the weight matrices count these parameters once per token (embedding tables not included).
  std::int64_t matrix_parameter_count() const;

 private:
  // Of tokens that begin at place `first`.
  Tensor compute(const Tensor& tokens, const Pass& pass, std::int64_t first, std::vector<KvCache>* caches);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally
