// GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373) in the format of `transformers`: rotary positions on a part of
// each head, LayerNorm, attention and MLP in parallel or in sequence. q, k and v are interleaved by head.
#include <cmath>

#include "tasks/foreign/family.hpp"

namespace tally {
namespace {

ForeignModel read(ForeignSettings& settings) {
  ForeignModel model{.encoding = "rope"};
  model.vocabulary = settings.count("vocab_size");
  model.positions = settings.count("max_position_embeddings", 2048);
  const std::int64_t width = settings.count("hidden_size"), heads = settings.count("num_attention_heads");
  if (width % heads != 0) {
    settings.refuse("num_attention_heads", "= {} does not divide hidden_size = {}", heads, width);
  }
  model.set("model.layers", settings.count("num_hidden_layers"));
  model.set("model.width", width);
  model.set("model.heads", heads);
  model.set("model.hidden", settings.count("intermediate_size", 4 * width));
  model.set("model.norm", "layer");
  model.set("model.norm-eps", settings.positive("layer_norm_eps", 1e-5));
  model.set("model.activation", activation_from_foreign(settings, "hidden_act", "gelu"));
  model.set("model.residual", settings.flag("use_parallel_residual", true) ? "parallel" : "sequential");
  model.set("model.tied", settings.flag("tie_word_embeddings", false));
  settings.demand("attention_bias", true, true);
  read_rope(settings, {.head_width = width / heads, .positions = model.positions, .fraction = 0.25}, model);
  return model;
}

JsonValue write(OwnSettings& settings) {
  settings.demand_encoding("rope");
  settings.one_of("model.norm", {"layer"});
  settings.one_of("model.bias", {"true"});
  const std::int64_t width = settings.integer("model.width"), heads = settings.integer("model.heads");
  const double eps = norm_eps_of(settings, 1e-5);
  const bool parallel = settings.one_of("model.residual", {"parallel", "sequential"}) == "parallel";
  JsonValue json = JsonValue::object({{"num_hidden_layers", settings.integer("model.layers")},
                                      {"hidden_size", width},
                                      {"num_attention_heads", heads},
                                      {"intermediate_size", hidden_of(settings)},
                                      {"hidden_act", foreign_activation(settings)},
                                      {"layer_norm_eps", eps},
                                      {"attention_bias", true},
                                      {"use_parallel_residual", parallel},
                                      {"tie_word_embeddings", settings.flag("model.tied")}});
  const std::int64_t dims = rotary_dims_of(settings, width / heads);
  const auto head_width = static_cast<double>(width) / static_cast<double>(heads);
  double part = static_cast<double>(dims) / head_width;
  if (std::floor(head_width * part) < static_cast<double>(dims))
    part = std::nextafter(part, 2.0);  // readers round down
  json.set("rotary_pct", part);
  json.set("rotary_emb_base", settings.real("pe.rope.base"));
  write_rope_scaling(settings, dims, json);
  return json;
}

std::vector<TensorRow> tensors(const ModelOptions& options) {
  std::vector<TensorRow> rows;
  rows.push_back({"gpt_neox.embed_in.weight", {"embedding.weight"}});
  for (std::int64_t n = 0; n < options.layers; ++n) {
    const std::string theirs = formatted("gpt_neox.layers.{}.", n), ours = formatted("blocks.{}.", n);
    const std::string attention = ours + "attention.";
    add_rows(rows, theirs + "input_layernorm", {ours + "attention_norm"}, true);
    add_rows(rows, theirs + "attention.query_key_value", {attention + "query", attention + "key", attention + "value"},
             true, Layout::by_head);
    add_rows(rows, theirs + "attention.dense", {attention + "output"}, true);
    add_rows(rows, theirs + "post_attention_layernorm", {ours + "mlp_norm"}, true);
    add_rows(rows, theirs + "mlp.dense_h_to_4h", {ours + "mlp.up"}, true);
    add_rows(rows, theirs + "mlp.dense_4h_to_h", {ours + "mlp.down"}, true);
  }
  add_rows(rows, "gpt_neox.final_layer_norm", {"norm"}, true);
  return rows;
}

}  // namespace

const Family neox_family{.name = "neox",
                         .model_type = "gpt_neox",
                         .architecture = "GPTNeoXForCausalLM",
                         .positions_key = "max_position_embeddings",
                         .prefix = "gpt_neox.",
                         .buffers = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
                         .head = "embed_out.weight",
                         .read = read,
                         .write = write,
                         .tensors = tensors};

}  // namespace tally
