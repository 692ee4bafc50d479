// LLaMA (arXiv 2302.13971) as `transformers` keeps it: rotary positions over the whole head, RMSNorm before each part,
// SwiGLU.
#include "tasks/foreign/family.hpp"
#include "tasks/foreign/rope_settings.hpp"

namespace tally {
namespace {

ForeignModel read(ForeignSettings& settings) {
  ForeignModel model{.encoding = "rope"};
  model.vocabulary = settings.count("vocab_size");
  model.positions = settings.count("max_position_embeddings", 2048);
  const std::int64_t width = settings.count("hidden_size"), heads = settings.count("num_attention_heads");
  if (!settings.has("head_dim") && width % heads != 0) {
    settings.refuse("num_attention_heads", "= ", heads, " does not divide hidden_size = ", width);
  }
  const std::int64_t head_width = settings.count("head_dim", width / heads);
  const std::int64_t key_heads = settings.count("num_key_value_heads", heads);
  if (heads % key_heads != 0) {
    settings.refuse("num_key_value_heads", "= ", key_heads, " does not divide num_attention_heads = ", heads);
  }
  model.set("model.layers", settings.count("num_hidden_layers"));
  model.set("model.width", width);
  model.set("model.heads", heads);
  if (key_heads != heads) model.set("model.kv-heads", key_heads);
  if (head_width * heads != width) model.set("model.head-width", head_width);
  model.set("model.hidden", settings.count("intermediate_size"));
  model.set("model.norm", "rms");
  model.set("model.norm-eps", settings.positive("rms_norm_eps", 1e-6));
  const std::string activation = settings.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") settings.refuse("hidden_act", "must be silu");
  model.set("model.activation", "swiglu");
  const bool bias = settings.flag("attention_bias", false);
  if (settings.flag("mlp_bias", false) != bias) {
    settings.refuse("mlp_bias", "= ", !bias, " with attention_bias = ", bias, ": tally has biases in both or in none");
  }
  model.set("model.bias", bias);
  model.set("model.tied", settings.flag("tie_word_embeddings", false));
  read_rope(settings, {.head_width = head_width, .positions = model.positions}, model);
  settings.pass_over({"attention_dropout", "pretraining_tp"});
  return model;
}

JsonValue write(OwnSettings& settings) {
  settings.demand_encoding("rope");
  settings.one_of("model.norm", {"rms"});
  settings.one_of("model.activation", {"swiglu"});
  const std::int64_t width = settings.integer("model.width"), heads = settings.integer("model.heads");
  const std::int64_t own = settings.integer("model.head-width"), head_width = own > 0 ? own : width / heads;
  const std::int64_t key_heads = settings.integer("model.kv-heads");
  const bool bias = settings.flag("model.bias");
  JsonValue json = JsonValue::object({{"num_hidden_layers", settings.integer("model.layers")},
                                      {"hidden_size", width},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", key_heads > 0 ? key_heads : heads},
                                      {"head_dim", head_width},
                                      {"intermediate_size", hidden_of(settings)},
                                      {"hidden_act", "silu"},
                                      {"rms_norm_eps", norm_eps_of(settings, 1e-6)},
                                      {"attention_bias", bias},
                                      {"mlp_bias", bias},
                                      {"tie_word_embeddings", settings.flag("model.tied")}});
  json.set("rope_theta", settings.real("pe.rope.base"));
  if (rotary_dims_of(settings, head_width) != head_width) settings.one_of("pe.rope.rotary-dims", {"0"});
  write_rope_scaling(settings, head_width, json);
  return json;
}

std::vector<TensorRow> tensors(const ModelOptions& options) {
  std::vector<TensorRow> rows;
  rows.push_back({"model.embed_tokens.weight", {"embedding.weight"}});
  for (std::int64_t n = 0; n < options.layers; ++n) {
    const std::string theirs = concat("model.layers.", n, "."), ours = concat("blocks.", n, ".");
    add_rows(rows, theirs + "input_layernorm", {ours + "attention_norm"}, false);
    for (const auto& [name, own] : {std::pair{"q", "query"}, {"k", "key"}, {"v", "value"}, {"o", "output"}}) {
      add_rows(rows, concat(theirs, "self_attn.", name, "_proj"), {concat(ours, "attention.", own)}, options.bias);
    }
    add_rows(rows, theirs + "post_attention_layernorm", {ours + "mlp_norm"}, false);
    for (const char* name : {"gate", "up", "down"}) {
      add_rows(rows, concat(theirs, "mlp.", name, "_proj"), {concat(ours, "mlp.", name)}, options.bias);
    }
  }
  add_rows(rows, "model.norm", {"norm"}, false);
  return rows;
}

}  // namespace

const Family llama_family{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .positions_key = "max_position_embeddings",
                          .prefix = "",
                          .buffers = {".rotary_emb.inv_freq"},
                          .head = "lm_head.weight",
                          .read = read,
                          .write = write,
                          .tensors = tensors};

}  // namespace tally
