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

void add_rows(std::vector<TensorRow>& rows, const std::string& theirs, const std::vector<std::string>& ours, bool bias,
              Layout layout) {
  for (const char* part : {".weight", ".bias"}) {
    if (!bias && std::string_view(part) == ".bias") continue;
    TensorRow row{theirs + part, {}, layout};
    for (const std::string& name : ours) row.ours.push_back(name + part);
    rows.push_back(std::move(row));
  }
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

std::vector<TensorRow> tensors_of_neox(const ModelOptions& options) {
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
                         .read = read_neox,
                         .write = write_neox,
                         .tensors = tensors_of_neox};

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

std::vector<TensorRow> tensors_of_llama(const ModelOptions& options) {
  return rows_with(options, {options.bias, options.bias});
}
std::vector<TensorRow> tensors_of_qwen2(const ModelOptions& options) { return rows_with(options, {true, false}); }

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
                          .tensors = tensors_of_llama};

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

std::vector<TensorRow> tensors_of_gpt2(const ModelOptions& options) {
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
                         .read = read_gpt2,
                         .write = write_gpt2,
                         .tensors = tensors_of_gpt2};

}  // namespace tally
