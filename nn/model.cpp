#include "nn/model.hpp"

#include "core/error.hpp"
#include "nn/layers/lstm.hpp"
#include "nn/transformer.hpp"

namespace tally {

void ModelOptions::visit(OptionVisitor& visitor) {
  visitor.choice("kind", kind, {"transformer", "lstm"},
                 "attention and MLPs, or LSTM layers, which need no position encoding");
  visitor.integer("layers", layers, "blocks of attention and MLP, or of LSTM", 1, 1000);
  visitor.integer("width", width, "model width D", 1, 1 << 16);
  visitor.integer("heads", heads, "attention heads H; divides the width unless head-width is set", 1, 1 << 16);
  visitor.integer("kv-heads", kv_heads, "key and value heads G, each for H/G query heads; divides H; 0: H", 0, 1 << 16);
  visitor.integer("head-width", head_width, "width of q, k and v in each head; 0: D/H", 0, 1 << 16);
  visitor.integer("hidden", hidden, "width of the MLP's hidden layer; 0: 4 D", 0, 1 << 20);
  visitor.choice("norm", norm, {"layer", "rms"}, "LayerNorm or RMSNorm");
  visitor.real("norm-eps", norm_eps, "epsilon of the norms; 0: 1e-5 (layer) or 1e-6 (rms)", 0, 1);
  visitor.choice("norm-place", norm_place, {"pre", "post"}, "norm before each sublayer, or after its residual");
  visitor.only_with("norm-place", {"pre"});
  visitor.choice("residual", residual, {"sequential", "parallel"},
                 "sequential: the MLP reads the sum with attention's output; parallel: both read the layer's input");
  visitor.choice("activation", activation, {"gelu", "gelu-tanh", "relu", "swiglu"},
                 "activation of the MLP; gelu uses erf, gelu-tanh is GPT-2's");
  visitor.real("dropout", dropout,
               "dropout of embeddings, attention weights, sublayer outputs and the MLP's hidden layer; of the outputs "
               "of LSTMs",
               0, 0.99);
  visitor.flag("bias", bias, "biases in the linear layers; the output projection has none");
  visitor.flag("tied", tied, "output projection = token embedding");
  visitor.flag("final-norm", final_norm, "norm before the output projection");
  visitor.choice("qk-norm", qk_norm, {"none", "head", "full"},
                 "norm of queries and keys before positions are encoded: per head, or over all heads together");
  visitor.choice("attention", attention, {"tiled", "composed"},
                 "fused attention in tiles, without T x T matrices; or the reference, which stores every intermediate");
  visitor.choice("init", init, {"gpt2", "fan-in", "authors"},
                 "initial values: N(0, 0.02^2); N(0, 1/in); or those of the released counting code");
}

void ModelOptions::validate() const {
  check_values(*this, "model");
  if (!is_transformer()) return;
  check(norm_eps == 0 || norm_eps >= 1e-20, "model",
        "norm-eps = {} must be 0 or at least 1e-20: in f32 a smaller one is lost, and a row of zeros is divided by 0",
        norm_eps);
  check(norm != "layer" || width > 1, "model",
        "norm = layer makes 0 of a width of 1, for any input; choose a larger width, or norm = rms");
  check(head_width > 0 || width % heads == 0, "model",
        "width {} is not divisible by {} heads, and no head-width is given", width, heads);
  check(heads % key_heads() == 0, "model", "kv-heads {} does not divide the {} heads", kv_heads, heads);
  const std::int64_t normed = width_of_head() * (qk_norm == "full" ? key_heads() : 1);
  check(qk_norm == "none" || normed > 1, "model",
        "qk-norm = {} needs more than one number: a norm leaves at most the sign of a single one; choose a larger "
        "head-width",
        qk_norm);
}

std::vector<std::string> ModelOptions::idle() const {
  if (is_transformer()) return {};
  return {"heads",      "kv-heads", "head-width", "hidden",     "norm",    "norm-eps",
          "norm-place", "residual", "activation", "final-norm", "qk-norm", "attention"};
}

Tensor SequenceModel::forward(const Tensor& tokens, const ForwardContext& pass) {
  return linear(hidden(tokens, pass), head());
}

TokenLoss SequenceModel::loss(const Tensor& tokens, const Tensor& targets, const Tensor& mask, const Tensor& weight,
                              const ForwardContext& pass) {
  const Tensor x = hidden(tokens, pass);
  const auto row_bytes = vocabulary() * static_cast<std::int64_t>(size_of(x.dtype()));
  if (tokens.numel() > most_logit_bytes / row_bytes) return linear_cross_entropy(x, head(), targets, mask, weight);
  return token_cross_entropy(linear(x, head()), targets, mask, weight);
}

std::int64_t SequenceModel::matrix_parameter_count() const {
  std::int64_t count = 0;
  bool has_head = false;
  const NamedTensors all = parameters();
  for (const auto& [path, parameter] : all) has_head = has_head || path == "head.weight";
  for (const auto& [path, parameter] : all) {
    const bool looked_up = path == "embedding.weight" && has_head;  // a tied one is also an operand
    if (parameter.rank() == 2 && path.ends_with(".weight") && !looked_up) count += parameter.numel();
  }
  return count;
}

void check_model(const ModelOptions& options, const EncodingChoice& encoding) {
  options.validate();
  if (options.is_transformer()) return encoding.check_covers(options.layers, options.heads, options.key_heads());
  check(encoding.text() == "none", "model",
        "pe = {} has no effect with kind = {}, which takes tokens in their order and has no positions to encode; it "
        "goes with --pe none",
        encoding.text(), options.kind);
}

std::unique_ptr<SequenceModel> make_model(const ModelOptions& options, const EncodingChoice& encoding,
                                          std::int64_t vocabulary, std::int64_t max_length, std::uint64_t seed,
                                          DType dtype, Device device) {
  check_model(options, encoding);
  const Initializer start(seed, start_values_from_text(options.init), dtype, device);
  if (options.is_transformer()) {
    return std::make_unique<Transformer>(options, encoding, vocabulary, max_length, start);
  }
  return std::make_unique<Lstm>(options, vocabulary, start);
}

}  // namespace tally
