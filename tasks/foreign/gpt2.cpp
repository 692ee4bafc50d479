// GPT-2 (Radford et al. 2019) in the format of `transformers`: learned positions, LayerNorm before each part, GELU by
// tanh, output projection = token embedding. Its weights are [in, out]; c_attn holds q, k and v side by side.
#include "tasks/foreign/family.hpp"

namespace tally {
namespace {

ForeignModel read(ForeignSettings& settings) {
  ForeignModel model{.encoding = "absolute", .learned_positions = true};
  model.vocabulary = settings.count("vocab_size");
  model.positions = settings.count("n_positions", 1024);
  const std::int64_t width = settings.count("n_embd"), heads = settings.count("n_head"),
                     layers = settings.count("n_layer");
  if (width % heads != 0) settings.refuse("n_head", "= {} does not divide n_embd = {}", heads, width);
  model.set("model.layers", layers);
  model.set("model.width", width);
  model.set("model.heads", heads);
  model.set("model.hidden", settings.count("n_inner", 4 * width));
  model.set("model.norm", "layer");
  model.set("model.norm-eps", settings.positive("layer_norm_epsilon", 1e-5));
  model.set("model.activation", activation_from_foreign(settings, "activation_function", "gelu_new"));
  model.set("model.tied", settings.flag("tie_word_embeddings", true));
  settings.demand("scale_attn_weights", true, true);
  settings.demand("scale_attn_by_inverse_layer_idx", false, false);
  // Aliases in that library.
  settings.agree("hidden_size", width);
  settings.agree("num_attention_heads", heads);
  settings.agree("num_hidden_layers", layers);
  settings.agree("max_position_embeddings", model.positions);
  return model;
}

JsonValue write(OwnSettings& settings) {
  settings.demand_encoding("absolute");
  settings.one_of("model.norm", {"layer"});
  settings.one_of("model.bias", {"true"});
  const double eps = norm_eps_of(settings, 1e-5);
  return JsonValue::object({{"n_layer", settings.integer("model.layers")},
                            {"n_embd", settings.integer("model.width")},
                            {"n_head", settings.integer("model.heads")},
                            {"n_inner", hidden_of(settings)},
                            {"activation_function", foreign_activation(settings)},
                            {"layer_norm_epsilon", eps},
                            {"scale_attn_weights", true},
                            {"scale_attn_by_inverse_layer_idx", false},
                            {"tie_word_embeddings", settings.flag("model.tied")}});
}

std::vector<TensorRow> tensors(const ModelOptions& options) {
  std::vector<TensorRow> rows;
  rows.push_back({"transformer.wte.weight", {"embedding.weight"}});
  rows.push_back({"transformer.wpe.weight", {"position.absolute.table"}});
  for (std::int64_t n = 0; n < options.layers; ++n) {
    const std::string theirs = formatted("transformer.h.{}.", n), ours = formatted("blocks.{}.", n);
    const std::string attention = ours + "attention.";
    add_rows(rows, theirs + "ln_1", {ours + "attention_norm"}, true);
    add_rows(rows, theirs + "attn.c_attn", {attention + "query", attention + "key", attention + "value"}, true,
             Layout::side_by_side);
    add_rows(rows, theirs + "attn.c_proj", {attention + "output"}, true, Layout::transposed);
    add_rows(rows, theirs + "ln_2", {ours + "mlp_norm"}, true);
    add_rows(rows, theirs + "mlp.c_fc", {ours + "mlp.up"}, true, Layout::transposed);
    add_rows(rows, theirs + "mlp.c_proj", {ours + "mlp.down"}, true, Layout::transposed);
  }
  add_rows(rows, "transformer.ln_f", {"norm"}, true);
  return rows;
}

}  // namespace

const Family gpt2_family{.name = "gpt2",
                         .model_type = "gpt2",
                         .architecture = "GPT2LMHeadModel",
                         .positions_key = "n_positions",
                         .prefix = "transformer.",
                         .buffers = {".attn.bias", ".attn.masked_bias"},
                         .head = "lm_head.weight",
                         .read = read,
                         .write = write,
                         .tensors = tensors};

}  // namespace tally
