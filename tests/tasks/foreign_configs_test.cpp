// config.json of other libraries, in the shapes of published models: every key, with real values except for sizes. Each
// is read as the matching options, or refused for a key that changes the computed function. Then missing keys, rotary
// settings of stretched positions, and the written form of both. foreign_models_test.cpp compares logits.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/io/json.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/error_of.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::foreign_configs_test {

using testing::contains;
using testing::error_of;

// The members of `common`, then the members of `more`.
JsonValue config(const char* common, const char* more = "{}") {
  JsonValue json = parse_json(common, {}, "common");
  const JsonValue others = parse_json(more, {}, "more");
  for (const auto& [name, value] : others.members()) json.set(name, value);
  return json;
}

std::map<std::string, std::string> options_of(const JsonValue& json) {
  const ForeignModel model = describe_foreign(json, "config.json").model;
  return {model.settings.begin(), model.settings.end()};
}

constexpr const char* gpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 39, "embd_pdrop": 0.1, "eos_token_id": 39, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2,
  "n_positions": 16, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 40})";

constexpr const char* neox = R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
  "hidden_act": "gelu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 128,
  "layer_norm_eps": 1e-05, "max_position_embeddings": 16, "model_type": "gpt_neox", "num_attention_heads": 2,
  "num_hidden_layers": 2, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
  "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true, "use_parallel_residual": true,
  "vocab_size": 40})";

constexpr const char* llama = R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24,
  "max_position_embeddings": 64, "model_type": "llama", "num_attention_heads": 2, "num_hidden_layers": 2,
  "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0",
  "use_cache": true, "vocab_size": 40})";

TEST(PublishedConfigs, AreReadAsTheirOptions) {
  struct Published {
    const char *common, *more;
    std::map<std::string, std::string> options;
  };
  const std::map<std::string, std::string> usual_gpt2{{"model.activation", "gelu-tanh"}, {"model.tied", "true"}};
  const std::vector<Published> all{
      {gpt2, "{}", usual_gpt2},
      // gpt2-medium, gpt2-large
      {gpt2, R"({"n_special": 0, "predict_special_tokens": true, "n_layer": 4, "n_head": 4})", usual_gpt2},
      // gpt2-xl
      {gpt2, R"({"n_special": 0, "predict_special_tokens": true, "output_past": true})", usual_gpt2},
      // distilgpt2
      {gpt2, R"({"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})", usual_gpt2},
      // pythia-70m to 12b
      {neox, "{}", {{"pe.rope.rotary-dims", "4"}, {"model.residual", "parallel"}, {"model.activation", "gelu"}}},
      // As 4.48 writes it
      {neox,
       R"({"attention_bias": true, "attention_dropout": 0.0, "classifier_dropout": 0.1, "hidden_dropout": 0.0,
                 "partial_rotary_factor": 0.25, "rope_scaling": null, "rope_theta": 10000})",
       {{"pe.rope.rotary-dims", "4"}}},
      // gpt-neox-20b
      {neox,
       R"({"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "hidden_act": "gelu_fast",
                 "eos_token_id": 0, "torch_dtype": "float16", "transformers_version": "4.19.0.dev0"})",
       {{"pe.rope.rotary-dims", "4"}, {"model.activation", "gelu-tanh"}}},
      // Llama-2-7b to 70b
      {llama,
       R"({"_name_or_path": "meta-llama/Llama-2-70b-hf", "num_key_value_heads": 1, "pretraining_tp": 1,
           "rope_scaling": null})",
       {{"model.kv-heads", "1"}}},
      // Meta-Llama-3-8B
      {llama,
       R"({"attention_bias": false, "attention_dropout": 0.0, "num_key_value_heads": 1, "pretraining_tp": 1,
           "rope_scaling": null, "rope_theta": 500000.0, "torch_dtype": "bfloat16"})",
       {{"pe.rope.base", "500000"}}},
      // Llama-3.1-8B: a length that is not the factor times the trained one
      {llama,
       R"({"attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "num_key_value_heads": 1,
           "pretraining_tp": 1, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 4, "rope_type": "llama3"}, "rope_theta": 500000.0})",
       {{"pe.rope.stretch", "llama3"}, {"pe.rope.factor", "8"}, {"pe.rope.trained-length", "4"}}},
      // Llama-3.2-1B-Instruct
      {llama,
       R"({"attention_bias": false, "attention_dropout": 0.0, "eos_token_id": [5, 6, 7], "head_dim": 8,
           "mlp_bias": false, "num_key_value_heads": 1, "pretraining_tp": 1, "rope_scaling": {"factor": 32.0,
           "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 4,
           "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true})",
       {{"pe.rope.factor", "32"}, {"model.tied", "true"}}},
      // deepseek-coder-6.7b-instruct
      {llama,
       R"({"attention_bias": false, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-06,
           "rope_scaling": {"factor": 4.0, "type": "linear"}, "rope_theta": 100000, "torch_dtype": "bfloat16"})",
       {{"pe.rope.stretch", "pi"}, {"pe.rope.factor", "4"}}},
  };
  for (const auto& [common, more, options] : all) {
    const JsonValue json = config(common, more);
    std::map<std::string, std::string> found = options_of(json);
    for (const auto& [name, value] : options) EXPECT_EQ(found[name], value) << name << more;
    EXPECT_TRUE(describe_foreign(json, "config.json").notes.empty()) << more;
  }
}

TEST(PublishedConfigs, OfQwen2HaveBiasesOnQueriesKeysAndValuesOnly) {
  const char* qwen = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 3,
    "eos_token_id": 5, "hidden_act": "silu", "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24,
    "max_position_embeddings": 64, "max_window_layers": 2, "model_type": "qwen2", "num_attention_heads": 2,
    "num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 64, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 40})";
  const ForeignDescription description = describe_foreign(config(qwen), "config.json");
  EXPECT_EQ(options_of(config(qwen)).at("model.bias"), "true");
  RunConfig run = config_of(description, "");
  int biases = 0;
  for (const TensorRow& row : tensor_rows(*description.family, run.model)) biases += row.theirs.ends_with(".bias");
  EXPECT_EQ(biases, 3);
  const std::string windows =
      error_of([&] { describe_foreign(config(qwen, R"({"use_sliding_window": true})"), "config.json"); });
  EXPECT_TRUE(contains(windows, "sliding_window")) << windows;
}

// Values that cannot be, and values with which the same keys, or related models, define another function.
TEST(PublishedConfigs, SettingsThatAreRefused) {
  struct Case {
    const char *common, *more, *why;
  };
  for (const auto& [common, more, why] : std::vector<Case>{
           {llama, R"({"rope_interleaved": true})", "'rope_interleaved' = true changes what the model computes"},
           {llama, R"({"sliding_window": 32})", "'sliding_window'"},
           {llama, R"({"quantization_config": {"bits": 4}})", "'quantization_config'"},
           {llama, R"({"final_logit_softcapping": 30.0})", "'final_logit_softcapping'"},
           {llama, R"({"layer_types": ["full_attention", "sliding_attention"]})", "'layer_types'"},
           {llama, R"({"logit_scale": 0.5})", "'logit_scale'"},
           {llama, R"({"model_type": "qwen3"})",
            "'model_type' = 'qwen3' is not read; there are gpt2, llama, gpt_neox, qwen2"},
           {llama, R"({"flash_decoding": true})", "'flash_decoding' is not a key that tally knows"},
           {llama, R"({"num_key_value_heads": 3})", "'num_key_value_heads' = 3 does not divide"},
           {llama, R"({"hidden_act": "gelu"})", "'hidden_act' must be silu"},
           {llama, R"({"mlp_bias": true})", "'mlp_bias' = true with attention_bias = false: tally has biases in both"},
           {llama, R"({"rope_parameters": {}, "rope_scaling": {"type": "dynamic"}})", "stands beside rope_parameters"},
           {llama, R"({"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": 20000.0})",
            "'rope_theta' = 20000 contra"},
           {llama, R"({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}})",
            "rope_parameters: 'low_freq_factor'"},
           {llama, R"({"rope_parameters": {"rope_type": "linear", "factor": 0.5}})", "at least 1"},
           {llama, R"({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": -1}})", "above 0"},
           {llama, R"({"rope_parameters": {"rope_type": "default", "odd": 1}})", "may change"},
           {neox, R"({"attention_bias": false})", "'attention_bias' = false is a function that tally does not have"},
           {neox, R"({"rotary_pct": 0.2})", "an even number from 2 on is wanted"},
           {gpt2, R"({"hidden_size": 16})", "'hidden_size' = 16 contradicts"},
           {gpt2, R"({"n_head": 3})", "'n_head' = 3 does not divide n_embd = 8"},
           {gpt2, R"({"n_head": 0})", "'n_head' is 0; it must be from 1"},
           {gpt2, R"({"n_layer": "2"})", "'n_layer' must be an integer, not a string"},
           {gpt2, R"({"n_layer": null})", "'n_layer' is missing"},
           {gpt2, R"({"vocab_size": 1099511627776})", "'vocab_size' is 1099511627776; it must be from 1"},
           {gpt2, R"({"activation_function": "silu"})", "= 'silu' is an activation that tally does not have"},
           {gpt2, R"({"scale_attn_weights": false})", "'scale_attn_weights' = false is a function"},
           {gpt2, R"({"window": 4096})", "may change what the model computes; --ignore-key NAME"}}) {
    const JsonValue json = config(common, more);
    const std::string error = error_of([&] { describe_foreign(json, "config.json"); });
    EXPECT_TRUE(error.starts_with("[import] config.json: ") && contains(error, why)) << why << "\n" << error;
  }
  EXPECT_TRUE(contains(error_of([] { describe_foreign(JsonValue::array(), "config.json"); }), "must hold an object"));
}

TEST(PublishedConfigs, KeysThatNobodyKnowsCanBeIgnoredByName) {
  const JsonValue json = config(llama, R"({"flash_decoding": true, "rope_scaling": {"type": "linear", "factor": 2.0,
                                           "note": "x"}})");
  const auto with = [&](const IgnoredKeys& ignored) { return describe_foreign(json, "config.json", {}, ignored); };
  EXPECT_NO_THROW(with({"flash_decoding", "rope_scaling.note"}));
  EXPECT_TRUE(contains(error_of([&] { with({"flash_decoding"}); }), "'note'"));
  EXPECT_TRUE(contains(error_of([&] { with({"flash_decoding", "rope_scaling.note", "odd"}); }), "no key 'odd'"));
  EXPECT_TRUE(contains(error_of([&] {
                         with({"flash_decoding", "rope_scaling.note", "hidden_size"});
                       }),
                       "'hidden_size' says what the model computes"));
}

TEST(PublishedConfigs, EndsAreThoseOfGenerationWhereItHasSome) {
  const JsonValue json = config(llama, R"({"eos_token_id": [5, 6, 99]})");
  EXPECT_EQ(describe_foreign(json, "config.json").record.ends, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(describe_foreign(config(gpt2), "config.json").record.ends, std::vector<std::int64_t>{39});
  const JsonValue none = parse_json(R"({"do_sample": true})", {}, "g"),
                  own = parse_json(R"({"eos_token_id": 7})", {}, "g");
  EXPECT_EQ(describe_foreign(json, "config.json", none).record.ends, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(describe_foreign(json, "config.json", own).record.ends, std::vector<std::int64_t>{7});
  EXPECT_TRUE(contains(error_of([] { describe_foreign(config(llama, R"({"eos_token_id": "</s>"})"), "config.json"); }),
                       "'eos_token_id' must be an id"));
}

constexpr const char* least_llama = R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 16,
  "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24, "max_position_embeddings": 64})";

// The defaults of GPT2Config, LlamaConfig and GPTNeoXConfig in `transformers`: files omit keys that equal them.
TEST(ForeignSettings, LeftOutAreThoseOfTheirLibrary) {
  const JsonValue least_gpt2 =
                      config(R"({"model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_head": 4, "n_layer": 2})"),
                  least_neox = config(R"({"model_type": "gpt_neox", "vocab_size": 40, "hidden_size": 32,
                                          "num_attention_heads": 4, "num_hidden_layers": 2})");
  EXPECT_EQ(describe_foreign(least_gpt2, "config.json").model.positions, 1024);
  EXPECT_EQ(
      describe_foreign(config(least_llama, R"({"max_position_embeddings": null})"), "config.json").model.positions,
      2048);
  // A quarter of a head is rotated in neox.
  for (const auto& [json, expected] : std::vector<std::pair<JsonValue, std::map<std::string, std::string>>>{
           {least_gpt2, {{"norm-eps", "0.00001"}, {"activation", "gelu-tanh"}, {"hidden", "64"}, {"tied", "true"}}},
           {config(least_llama), {{"norm-eps", "1e-06"}, {"tied", "false"}, {"bias", "false"}, {"base", "10000"}}},
           {least_neox,
            {{"norm-eps", "0.00001"},
             {"activation", "gelu"},
             {"residual", "parallel"},
             {"tied", "false"},
             {"base", "10000"},
             {"rotary-dims", "2"}}}}) {
    std::map<std::string, std::string> found = options_of(json);
    for (const auto& [name, value] : expected) {
      const char* const group = name == "base" || name == "rotary-dims" ? "pe.rope." : "model.";
      EXPECT_EQ(found[group + name], value) << json.string("model_type") << " " << name;
    }
  }
}

// Without a factor, yarn stretches from the trained length to the model's length.
TEST(ForeignSettings, YarnWithoutAFactorStretchesToTheModelsLength) {
  JsonValue json = config(least_llama);
  json.set("rope_parameters", JsonValue::object({{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}}));
  std::map<std::string, std::string> found = options_of(json);
  EXPECT_EQ(found["pe.rope.factor"], "4");
  EXPECT_EQ(found["pe.rope.trained-length"], "16");
}

// The file has the rotated part of a head as a fraction, and readers round the dims down: 49 times 2/49 to 1.
TEST(ForeignSettings, ARotatedPartComesBackWithAllItsDims) {
  for (const auto& [head_width, dims] : {std::pair{49, 2}, {49, 32}, {44, 30}, {46, 26}, {64, 16}}) {
    RunConfig config = testing::with(RunConfig::make("text", "rope"),
                                     formatted("model.heads=2 model.width={} model.norm=layer pe.rope.rotary-dims={}",
                                               std::to_string(2 * head_width), std::to_string(dims)));
    OwnSettings own(config, "neox");
    JsonValue json = neox_family.write(own);
    json.set("vocab_size", 40);
    ForeignSettings settings(json, "config.json");
    const ForeignModel model = neox_family.read(settings);
    const std::map<std::string, std::string> found(model.settings.begin(), model.settings.end());
    EXPECT_EQ(found.at("pe.rope.rotary-dims"), std::to_string(dims)) << "of " << head_width;
  }
}

using Settings = std::vector<std::pair<std::string, std::string>>;

JsonValue rotary(const JsonValue& rope) { return config(least_llama).set("rope_parameters", rope); }

Settings rope_options(const JsonValue& config) {
  Settings options;
  for (const auto& option : describe_foreign(config, "config.json").model.settings) {
    if (option.first.starts_with("pe.")) options.push_back(option);
  }
  return options;
}

// Checks the settings that a run with these options writes, and that they are read as the same options.
JsonValue written_back(const JsonValue& rope, std::int64_t positions = 64) {
  JsonValue source = rotary(rope);
  source.set("max_position_embeddings", positions);
  RunConfig config = config_of(describe_foreign(source, "config.json"), "");
  OwnSettings settings(config, "llama");
  JsonValue json = find_family("llama").write(settings);
  settings.refuse_unread();
  if (!json.contains("max_position_embeddings")) json.set("max_position_embeddings", positions);
  json.set("model_type", "llama").set("vocab_size", 40);
  EXPECT_EQ(rope_options(json), rope_options(source));
  EXPECT_TRUE(describe_foreign(json, "config.json").notes.empty());
  return json;
}

JsonValue yarn(std::initializer_list<JsonMember> more = {}) {
  JsonValue rope = JsonValue::object(
      {{"rope_type", "yarn"}, {"rope_theta", 500.0}, {"factor", 4.0}, {"original_max_position_embeddings", 16}});
  for (const JsonMember& member : more) rope.set(member.name, member.value);
  return rope;
}

// The older form has the lengths in rope_scaling.
TEST(StretchedRope, IsReadInBothForms) {
  JsonValue config = rotary({}), scaling = yarn();
  scaling.remove("rope_theta");
  config.remove("rope_parameters");
  config.set("rope_theta", 500.0).set("rope_scaling", scaling);
  EXPECT_EQ(rope_options(config), rope_options(rotary(yarn())));
  config = rotary(yarn()).set("original_max_position_embeddings", 32);
  EXPECT_TRUE(contains(error_of([&] { describe_foreign(config, "config.json"); }), "contradicts the same key outside"));
}

// Both names of the type, and all lengths: some versions use the quotient of the lengths as the factor.
TEST(StretchedRope, IsWrittenWithBothNamesAndAllLengths) {
  const JsonValue json = written_back(yarn()), scaling = json.at("rope_scaling");
  EXPECT_EQ(scaling.string("type"), "yarn");
  EXPECT_EQ(scaling.string("rope_type"), "yarn");
  EXPECT_EQ(json.integer("max_position_embeddings"), 64);
  EXPECT_EQ(scaling.integer("original_max_position_embeddings"), 16);
  EXPECT_EQ(scaling.real("attention_factor"), 0.1 * std::log(4.0) + 1);
  // Also if the file's model ends at the trained length.
  EXPECT_EQ(written_back(yarn(), 16).integer("max_position_embeddings"), 64);
  const JsonValue linear = written_back(JsonValue::object({{"rope_type", "linear"}, {"factor", 2.5}}));
  EXPECT_EQ(linear.at("rope_scaling").string("type"), "linear");
  EXPECT_EQ(linear.integer("max_position_embeddings"), 64);
}

TEST(StretchedRope, YarnHasItsOwnAttentionFactorAndBounds) {
  const auto option = [](const JsonValue& rope, std::string_view name) -> std::string {
    for (const auto& [own, value] : rope_options(rotary(rope))) {
      if (own == formatted("pe.rope.{}", name)) return value;
    }
    return "";
  };
  EXPECT_EQ(option(yarn({{"attention_factor", 0.75}}), "attention-factor"), "0.75");
  EXPECT_EQ(option(yarn({{"attention_factor", 0.1 * std::log(4.0) + 1}}), "attention-factor"), "");
  EXPECT_EQ(option(yarn({{"beta_fast", 64}, {"beta_slow", 0}}), "beta-fast"), "64");
  EXPECT_EQ(option(yarn({{"beta_fast", 64}, {"beta_slow", 0}}), "beta-slow"), "") << "0 is the usual one";
  EXPECT_EQ(option(yarn({{"truncate", false}}), "truncate"), "false");
  written_back(yarn({{"attention_factor", 0.75}, {"beta_fast", 20.0}, {"beta_slow", 2.5}, {"truncate", false}}));
}

// For the type dynamic, the trained length is the model's length.
TEST(StretchedRope, DynamicIsFromTheModelsLengthOn) {
  const JsonValue rope = JsonValue::object({{"type", "dynamic"}, {"factor", 2.0}});
  const Settings wanted{{"pe.rope.base", "10000"},
                        {"pe.rope.stretch", "dynamic"},
                        {"pe.rope.factor", "2"},
                        {"pe.rope.trained-length", "64"}};
  EXPECT_EQ(rope_options(rotary(rope)), wanted);
  EXPECT_EQ(written_back(rope).integer("max_position_embeddings"), 64);
}

TEST(StretchedRope, ContradictionsAreRefused) {
  struct Case {
    const char *key, *value, *why;
  };
  for (const auto& [key, value, why] :
       {Case{"factor", "2.0", "'factor' = 2 times original_max_position_embeddings = 16 is 32, but "},
        {"original_max_position_embeddings", "65", "is more than max_position_embeddings = 64"},
        {"type", R"("linear")", "'type' contradicts rope_type"},
        {"mscale", "0.7", "'mscale' is not a key that tally knows"},
        {"factor", "0.5", "at least 1"},
        {"attention_factor", "0.0", "must be above 0"},
        {"rope_type", "null", "does not say how"},
        {"rope_type", R"("dynamic")", "contradicts max_position_embeddings = 64"},
        {"rope_type", R"("mrope")", "'mrope' is not there in tally"}}) {
    const JsonValue rope = yarn().set(key, parse_json(value, {}, "value"));
    const std::string error = error_of([&] { describe_foreign(rotary(rope), "config.json"); });
    EXPECT_TRUE(error.starts_with("[import] config.json: ") && contains(error, why)) << why << "\n" << error;
  }
}

}  // namespace tally::foreign_configs_test
