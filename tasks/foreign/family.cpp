#include "tasks/foreign/family.hpp"

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

std::span<const Family* const> families() {
  static const std::array all{&gpt2_family, &llama_family, &neox_family, &qwen2_family};
  return all;
}

const Family& find_family(std::string_view name) {
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (family->name == name) return *family;
    known.emplace_back(family->name);
  }
  fail("export", "there is no format '{}'{}", escape_for_print(name, 60), did_you_mean_or_known(name, known));
}

std::vector<TensorRow> tensor_rows(const Family& family, const ModelOptions& options) {
  std::vector<TensorRow> rows = family.embeddings;
  const auto add = [&](const LayerWeight& weight, const std::string& theirs, const std::string& ours) {
    const bool has_bias = weight.bias == WithBias::always || (weight.bias == WithBias::optional && options.bias);
    for (const char* part : has_bias ? std::vector{".weight", ".bias"} : std::vector{".weight"}) {
      TensorRow row{formatted("{}{}{}", theirs, weight.theirs, part), {}, weight.layout};
      for (const std::string_view own : weight.ours) row.ours.push_back(formatted("{}{}{}", ours, own, part));
      rows.push_back(std::move(row));
    }
  };
  for (std::int64_t n = 0; n < options.layers; ++n) {
    const std::string theirs = formatted("{}{}.", family.layers, n), ours = formatted("blocks.{}.", n);
    for (const LayerWeight& weight : family.weights) add(weight, theirs, ours);
  }
  add(family.norm, "", "");
  if (!options.tied) rows.push_back({std::string(family.head), {"head.weight"}});
  return rows;
}

std::string activation_from_foreign(ForeignSettings& settings, std::string_view key, std::string_view usual) {
  const std::string name = settings.text(key, usual);
  if (name == "gelu" || name == "relu") return name;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu-tanh";
  settings.refuse(key, "= '{}' is an activation that tally does not have; it has gelu, gelu_new and relu",
                  escape_for_print(name, 60));
}

std::string foreign_activation(OwnSettings& settings) {
  const std::string name = settings.one_of("model.activation", {"gelu", "gelu-tanh", "relu"});
  return name == "gelu-tanh" ? "gelu_new" : name;
}

std::int64_t hidden_of(OwnSettings& settings) {
  const std::int64_t hidden = settings.integer("model.hidden");
  return hidden > 0 ? hidden : 4 * settings.integer("model.width");
}

double norm_eps_of(OwnSettings& settings, double usual) {
  const double eps = settings.real("model.norm-eps");
  return eps > 0 ? eps : usual;
}

// GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373) in the format of `transformers`: rotary positions on a part of
// each head, LayerNorm, attention and MLP in parallel or in sequence. q, k and v are interleaved by head.

namespace {

ForeignModel read_neox(ForeignSettings& settings) {
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

JsonValue write_neox(OwnSettings& settings) {
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
  write_rope_scaling(settings, json);
  return json;
}

}  // namespace

const Family neox_family{.name = "neox",
                         .model_type = "gpt_neox",
                         .architecture = "GPTNeoXForCausalLM",
                         .positions_key = "max_position_embeddings",
                         .prefix = "gpt_neox.",
                         .buffers = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
                         .head = "embed_out.weight",
                         .read = read_neox,
                         .write = write_neox,
                         .embeddings = {{"gpt_neox.embed_in.weight", {"embedding.weight"}}},
                         .layers = "gpt_neox.layers.",
                         .weights = {{"input_layernorm", {"attention_norm"}},
                                     {"attention.query_key_value",
                                      {"attention.query", "attention.key", "attention.value"},
                                      WithBias::always,
                                      Layout::by_head},
                                     {"attention.dense", {"attention.output"}},
                                     {"post_attention_layernorm", {"mlp_norm"}},
                                     {"mlp.dense_h_to_4h", {"mlp.up"}},
                                     {"mlp.dense_4h_to_h", {"mlp.down"}}},
                         .norm = {"gpt_neox.final_layer_norm", {"norm"}}};

// LLaMA (arXiv 2302.13971) and Qwen2 (arXiv 2407.10671) in the format of `transformers`: rotary positions over the
// whole head, RMSNorm before each part, SwiGLU. Qwen2 has biases only on q, k and v; our other biases are 0.

namespace {

// Reads the common keys. usual_positions: the default number of positions.
ForeignModel read_rotary(ForeignSettings& settings, std::int64_t usual_positions) {
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

ForeignModel read_llama(ForeignSettings& settings) {
  ForeignModel model = read_rotary(settings, 2048);
  const bool bias = settings.flag("attention_bias", false);
  if (settings.flag("mlp_bias", false) != bias) {
    settings.refuse("mlp_bias", "= {} with attention_bias = {}: tally has biases in both or in none", !bias, bias);
  }
  model.set("model.bias", bias);
  return model;
}

ForeignModel read_qwen2(ForeignSettings& settings) {
  ForeignModel model = read_rotary(settings, 32768);
  model.set("model.bias", true);
  return model;
}

JsonValue write_rotary(OwnSettings& settings) {
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
  write_rope_scaling(settings, json);
  return json;
}

JsonValue write_llama(OwnSettings& settings) {
  JsonValue json = write_rotary(settings);
  const bool bias = settings.flag("model.bias");
  return json.set("attention_bias", bias).set("mlp_bias", bias);
}

JsonValue write_qwen2(OwnSettings& settings) {
  settings.one_of("model.bias", {"true"});
  return write_rotary(settings).set("use_sliding_window", false);
}

std::vector<LayerWeight> rotary_weights(WithBias inner, WithBias others) {
  return {{"input_layernorm", {"attention_norm"}, WithBias::never},
          {"self_attn.q_proj", {"attention.query"}, inner},
          {"self_attn.k_proj", {"attention.key"}, inner},
          {"self_attn.v_proj", {"attention.value"}, inner},
          {"self_attn.o_proj", {"attention.output"}, others},
          {"post_attention_layernorm", {"mlp_norm"}, WithBias::never},
          {"mlp.gate_proj", {"mlp.gate"}, others},
          {"mlp.up_proj", {"mlp.up"}, others},
          {"mlp.down_proj", {"mlp.down"}, others}};
}

}  // namespace

const Family llama_family{.name = "llama",
                          .model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .positions_key = "max_position_embeddings",
                          .prefix = "model.",
                          .buffers = {".rotary_emb.inv_freq"},
                          .head = "lm_head.weight",
                          .read = read_llama,
                          .write = write_llama,
                          .embeddings = {{"model.embed_tokens.weight", {"embedding.weight"}}},
                          .layers = "model.layers.",
                          .weights = rotary_weights(WithBias::optional, WithBias::optional),
                          .norm = {"model.norm", {"norm"}, WithBias::never}};

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
                          .embeddings = {{"model.embed_tokens.weight", {"embedding.weight"}}},
                          .layers = "model.layers.",
                          .weights = rotary_weights(WithBias::always, WithBias::never),
                          .norm = {"model.norm", {"norm"}, WithBias::never}};

// GPT-2 (Radford et al. 2019) in the format of `transformers`: learned positions, LayerNorm before each part, GELU by
// tanh, output projection = token embedding. Its weights are [in, out]; c_attn holds q, k and v side by side.

namespace {

ForeignModel read_gpt2(ForeignSettings& settings) {
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

JsonValue write_gpt2(OwnSettings& settings) {
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

}  // namespace

const Family gpt2_family{.name = "gpt2",
                         .model_type = "gpt2",
                         .architecture = "GPT2LMHeadModel",
                         .positions_key = "n_positions",
                         .prefix = "transformer.",
                         .buffers = {".attn.bias", ".attn.masked_bias"},
                         .head = "lm_head.weight",
                         .read = read_gpt2,
                         .write = write_gpt2,
                         .embeddings = {{"transformer.wte.weight", {"embedding.weight"}},
                                        {"transformer.wpe.weight", {"position.absolute.table"}}},
                         .layers = "transformer.h.",
                         .weights = {{"ln_1", {"attention_norm"}},
                                     {"attn.c_attn",
                                      {"attention.query", "attention.key", "attention.value"},
                                      WithBias::always,
                                      Layout::side_by_side},
                                     {"attn.c_proj", {"attention.output"}, WithBias::always, Layout::transposed},
                                     {"ln_2", {"mlp_norm"}},
                                     {"mlp.c_fc", {"mlp.up"}, WithBias::always, Layout::transposed},
                                     {"mlp.c_proj", {"mlp.down"}, WithBias::always, Layout::transposed}},
                         .norm = {"transformer.ln_f", {"norm"}}};

}  // namespace tally
