// config.json in the shapes of published models: every key, with real values except for sizes. Each is read as the
// matching options, or refused for a key that changes the computed function.
#include <gtest/gtest.h>

#include <map>

#include "core/io/json.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/error_of.hpp"

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

TEST(PublishedConfigs, OfGpt2InAllItsSizesAndDistilled) {
  for (const char* more : {
           "{}",                                                                              // gpt2
           R"({"n_special": 0, "predict_special_tokens": true, "n_layer": 4, "n_head": 4})",  // gpt2-medium, gpt2-large
           R"({"n_special": 0, "predict_special_tokens": true, "output_past": true})",        // gpt2-xl
           R"({"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})",  // distilgpt2
       }) {
    const JsonValue json = config(gpt2, more);
    std::map<std::string, std::string> found = options_of(json);
    EXPECT_EQ(found["model.activation"], "gelu-tanh") << more;
    EXPECT_EQ(found["model.tied"], "true") << more;
    EXPECT_EQ(describe_foreign(json, "config.json").record.ends, std::vector<std::int64_t>{39});
  }
}

constexpr const char* neox = R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
  "hidden_act": "gelu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 128,
  "layer_norm_eps": 1e-05, "max_position_embeddings": 16, "model_type": "gpt_neox", "num_attention_heads": 2,
  "num_hidden_layers": 2, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
  "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true, "use_parallel_residual": true,
  "vocab_size": 40})";

TEST(PublishedConfigs, OfPythiaAndNeox) {
  for (
      const char* more : {
          "{}",                                                                              // pythia-70m to 12b
          R"({"attention_bias": true, "attention_dropout": 0.0, "classifier_dropout": 0.1, "hidden_dropout": 0.0,
               "partial_rotary_factor": 0.25, "rope_scaling": null, "rope_theta": 10000})",  // as 4.48 writes it
          R"({"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "hidden_act": "gelu_fast", "eos_token_id": 0,
               "torch_dtype": "float16", "transformers_version": "4.19.0.dev0"})",           // gpt-neox-20b
      }) {
    std::map<std::string, std::string> found = options_of(config(neox, more));
    EXPECT_EQ(found["pe.rope.rotary-dims"], "4") << more;
    EXPECT_EQ(found["model.residual"], "parallel") << more;
    EXPECT_EQ(found["model.activation"], contains(more, "gelu_fast") ? "gelu-tanh" : "gelu");
  }
}

constexpr const char* llama = R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24,
  "max_position_embeddings": 64, "model_type": "llama", "num_attention_heads": 2, "num_hidden_layers": 2,
  "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0",
  "use_cache": true, "vocab_size": 40})";

TEST(PublishedConfigs, OfLlamaAndItsKin) {
  struct Published {
    const char* more;
    std::map<std::string, std::string> options;
  };
  const std::vector<Published> all{
      // Llama-2-7b to 70b
      {R"({"_name_or_path": "meta-llama/Llama-2-70b-hf", "num_key_value_heads": 1, "pretraining_tp": 1,
           "rope_scaling": null})",
       {{"model.kv-heads", "1"}}},
      // Meta-Llama-3-8B
      {R"({"attention_bias": false, "attention_dropout": 0.0, "num_key_value_heads": 1, "pretraining_tp": 1,
           "rope_scaling": null, "rope_theta": 500000.0, "torch_dtype": "bfloat16"})",
       {{"pe.rope.base", "500000"}}},
      // Llama-3.1-8B: a length that is not the factor times the trained one
      {R"({"attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "num_key_value_heads": 1,
           "pretraining_tp": 1, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 4, "rope_type": "llama3"}, "rope_theta": 500000.0})",
       {{"pe.rope.stretch", "llama3"}, {"pe.rope.factor", "8"}, {"pe.rope.trained-length", "4"}}},
      // Llama-3.2-1B-Instruct
      {R"({"attention_bias": false, "attention_dropout": 0.0, "eos_token_id": [5, 6, 7], "head_dim": 8,
           "mlp_bias": false, "num_key_value_heads": 1, "pretraining_tp": 1, "rope_scaling": {"factor": 32.0,
           "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 4,
           "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true})",
       {{"pe.rope.factor", "32"}, {"model.tied", "true"}}},
      // deepseek-coder-6.7b-instruct
      {R"({"attention_bias": false, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-06,
           "rope_scaling": {"factor": 4.0, "type": "linear"}, "rope_theta": 100000, "torch_dtype": "bfloat16"})",
       {{"pe.rope.stretch", "pi"}, {"pe.rope.factor", "4"}}},
  };
  for (const auto& [more, options] : all) {
    const JsonValue json = config(llama, more);
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

// With these values the same keys, and related models, define another function.
TEST(PublishedConfigs, ThatAreRefusedForWhatTheyCompute) {
  for (const auto& [more, key] : std::vector<std::pair<const char*, const char*>>{
           {R"({"rope_interleaved": true})", "'rope_interleaved' = true changes what the model computes"},
           {R"({"sliding_window": 32})", "'sliding_window'"},
           {R"({"quantization_config": {"bits": 4}})", "'quantization_config'"},
           {R"({"final_logit_softcapping": 30.0})", "'final_logit_softcapping'"},
           {R"({"layer_types": ["full_attention", "sliding_attention"]})", "'layer_types'"},
           {R"({"logit_scale": 0.5})", "'logit_scale'"},
           {R"({"model_type": "qwen3"})", "'model_type' = 'qwen3' is not read; there are gpt2"},
           {R"({"flash_decoding": true})", "'flash_decoding' is not a key that tally knows"},
       }) {
    const std::string error = error_of([&] { describe_foreign(config(llama, more), "config.json"); });
    EXPECT_TRUE(contains(error, key)) << error;
  }
  EXPECT_TRUE(contains(error_of([] { describe_foreign(config(gpt2, R"({"hidden_size": 16})"), "config.json"); }),
                       "'hidden_size' = 16 contradicts"));
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
  const JsonValue none = parse_json(R"({"do_sample": true})", {}, "g"),
                  own = parse_json(R"({"eos_token_id": 7})", {}, "g");
  EXPECT_EQ(describe_foreign(json, "config.json", none).record.ends, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(describe_foreign(json, "config.json", own).record.ends, std::vector<std::int64_t>{7});
  EXPECT_TRUE(contains(error_of([] { describe_foreign(config(llama, R"({"eos_token_id": "</s>"})"), "config.json"); }),
                       "'eos_token_id' must be an id"));
}

}  // namespace tally::foreign_configs_test
