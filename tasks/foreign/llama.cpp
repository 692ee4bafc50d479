// LLaMA (arXiv 2302.13971) and Qwen2 (arXiv 2407.10671) in the format of `transformers`: rotary positions over the
// whole head, RMSNorm before each part, SwiGLU. Qwen2 has biases only on q, k and v; our other biases are 0.
#include "tasks/foreign/family.hpp"

namespace tally {
namespace {

// Reads the common keys. usual_positions: the default number of positions.
ForeignModel read_common(ForeignSettings& settings, std::int64_t usual_positions) {
  ForeignModel model{.encoding = "rope"};
  model.vocabulary = settings.count("vocab_size");
  model.positions = settings.count("max_position_embeddings", usual_positions);
  const std::int64_t width = settings.count("hidden_size"), heads = settings.count("num_attention_heads");
  if (!settings.has("head_dim") && width % heads != 0) {
    settings.refuse("num_attention_heads", "= {} does not divide hidden_size = {}", heads, width);
  }
  const std::int64_t head_width = settings.count("head_dim", width / heads);
  const std::int64_t key_heads = settings.count("num_key_value_heads", heads);
  if (heads % key_heads != 0) {
    settings.refuse("num_key_value_heads", "= {} does not divide num_attention_heads = {}", key_heads, heads);
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
  model.set("model.tied", settings.flag("tie_word_embeddings", false));
  read_rope(settings, {.head_width = head_width, .positions = model.positions}, model);
  return model;
}

ForeignModel read(ForeignSettings& settings) {
  ForeignModel model = read_common(settings, 2048);
  const bool bias = settings.flag("attention_bias", false);
  if (settings.flag("mlp_bias", false) != bias) {
    settings.refuse("mlp_bias", "= {} with attention_bias = {}: tally has biases in both or in none", !bias, bias);
  }
  model.set("model.bias", bias);
  return model;
}

ForeignModel read_qwen2(ForeignSettings& settings) {
  ForeignModel model = read_common(settings, 32768);
  model.set("model.bias", true);
  return model;
}

JsonValue write_common(OwnSettings& settings) {
  settings.demand_encoding("rope");
  settings.one_of("model.norm", {"rms"});
  settings.one_of("model.activation", {"swiglu"});
  const std::int64_t width = settings.integer("model.width"), heads = settings.integer("model.heads");
  const std::int64_t own = settings.integer("model.head-width"), head_width = own > 0 ? own : width / heads;
  const std::int64_t key_heads = settings.integer("model.kv-heads");
  JsonValue json = JsonValue::object({{"num_hidden_layers", settings.integer("model.layers")},
                                      {"hidden_size", width},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", key_heads > 0 ? key_heads : heads},
                                      {"head_dim", head_width},
                                      {"intermediate_size", hidden_of(settings)},
                                      {"hidden_act", "silu"},
                                      {"rms_norm_eps", norm_eps_of(settings, 1e-6)},
                                      {"tie_word_embeddings", settings.flag("model.tied")}});
  json.set("rope_theta", settings.real("pe.rope.base"));
  if (rotary_dims_of(settings, head_width) != head_width) settings.one_of("pe.rope.rotary-dims", {"0"});
  write_rope_scaling(settings, head_width, json);
  return json;
}

JsonValue write(OwnSettings& settings) {
  JsonValue json = write_common(settings);
  const bool bias = settings.flag("model.bias");
  return json.set("attention_bias", bias).set("mlp_bias", bias);
}

JsonValue write_qwen2(OwnSettings& settings) {
  settings.one_of("model.bias", {"true"});
  return write_common(settings).set("use_sliding_window", false);
}

struct Biases {
  bool inner, others;  // of q, k and v; of all other layers
};

std::vector<TensorRow> rows_with(const ModelOptions& options, Biases biases) {
  std::vector<TensorRow> rows;
  rows.push_back({"model.embed_tokens.weight", {"embedding.weight"}});
  for (std::int64_t n = 0; n < options.layers; ++n) {
    const std::string theirs = formatted("model.layers.{}.", n), ours = formatted("blocks.{}.", n);
    add_rows(rows, theirs + "input_layernorm", {ours + "attention_norm"}, false);
    for (const auto& [name, own] : {std::pair{"q", "query"}, {"k", "key"}, {"v", "value"}, {"o", "output"}}) {
      add_rows(rows, formatted("{}self_attn.{}_proj", theirs, name), {formatted("{}attention.{}", ours, own)},
               *name == 'o' ? biases.others : biases.inner);
    }
    add_rows(rows, theirs + "post_attention_layernorm", {ours + "mlp_norm"}, false);
    for (const char* name : {"gate", "up", "down"}) {
      add_rows(rows, formatted("{}mlp.{}_proj", theirs, name), {formatted("{}mlp.{}", ours, name)}, biases.others);
    }
  }
  add_rows(rows, "model.norm", {"norm"}, false);
  return rows;
}

std::vector<TensorRow> tensors(const ModelOptions& options) { return rows_with(options, {options.bias, options.bias}); }
std::vector<TensorRow> tensors_of_qwen2(const ModelOptions& options) { return rows_with(options, {true, false}); }

}  // namespace

const Family llama_family{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .positions_key = "max_position_embeddings",
                          .prefix = "model.",
                          .buffers = {".rotary_emb.inv_freq"},
                          .head = "lm_head.weight",
                          .read = read,
                          .write = write,
                          .tensors = tensors};

const Family qwen2_family{.name = "qwen2",
                          .model_type = "qwen2",
                          .architecture = "Qwen2ForCausalLM",
                          .positions_key = "max_position_embeddings",
                          .prefix = "model.",
                          .buffers = {".rotary_emb.inv_freq"},
                          .head = "lm_head.weight",
                          .zeros = {".attention.output.bias", ".mlp.gate.bias", ".mlp.up.bias", ".mlp.down.bias"},
                          .read = read_qwen2,
                          .write = write_qwen2,
                          .tensors = tensors_of_qwen2};

}  // namespace tally
