// The meaning of missing keys in config.json of another library, and the written form of a rotated part.
#include <gtest/gtest.h>

#include <map>

#include "tasks/foreign/family.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::foreign_settings_test {

std::map<std::string, std::string> settings_of(const JsonValue& json) {
  const ForeignModel model = describe_foreign(json, "config.json").model;
  return {model.settings.begin(), model.settings.end()};
}

JsonValue least_llama() {
  return JsonValue::object({{"model_type", "llama"},
                            {"vocab_size", 40},
                            {"hidden_size", 16},
                            {"num_attention_heads", 4},
                            {"num_hidden_layers", 2},
                            {"intermediate_size", 24}});
}

// The defaults of GPT2Config, LlamaConfig and GPTNeoXConfig in `transformers`: files omit keys that equal them.
TEST(ForeignSettings, LeftOutAreThoseOfTheirLibrary) {
  const JsonValue gpt2 =
      JsonValue::object({{"model_type", "gpt2"}, {"vocab_size", 40}, {"n_embd", 16}, {"n_head", 4}, {"n_layer", 2}});
  const JsonValue neox = JsonValue::object({{"model_type", "gpt_neox"},
                                            {"vocab_size", 40},
                                            {"hidden_size", 32},
                                            {"num_attention_heads", 4},
                                            {"num_hidden_layers", 2}});
  EXPECT_EQ(describe_foreign(gpt2, "config.json").model.positions, 1024);
  EXPECT_EQ(describe_foreign(least_llama(), "config.json").model.positions, 2048);
  // A quarter of a head is rotated in neox.
  for (const auto& [json, expected] : std::vector<std::pair<JsonValue, std::map<std::string, std::string>>>{
           {gpt2, {{"norm-eps", "0.00001"}, {"activation", "gelu-tanh"}, {"hidden", "64"}, {"tied", "true"}}},
           {least_llama(), {{"norm-eps", "1e-06"}, {"tied", "false"}, {"bias", "false"}, {"base", "10000"}}},
           {neox,
            {{"norm-eps", "0.00001"},
             {"activation", "gelu"},
             {"residual", "parallel"},
             {"tied", "false"},
             {"base", "10000"},
             {"rotary-dims", "2"}}}}) {
    std::map<std::string, std::string> found = settings_of(json);
    for (const auto& [name, value] : expected) {
      const char* const group = name == "base" || name == "rotary-dims" ? "pe.rope." : "model.";
      EXPECT_EQ(found[group + name], value) << json.string("model_type") << " " << name;
    }
  }
}

// Without a factor, yarn stretches from the trained length to the model's length.
TEST(ForeignSettings, YarnWithoutAFactorStretchesToTheModelsLength) {
  JsonValue json = least_llama();
  json.set("max_position_embeddings", 64);
  json.set("rope_parameters", JsonValue::object({{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}}));
  std::map<std::string, std::string> found = settings_of(json);
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

}  // namespace tally::foreign_settings_test
