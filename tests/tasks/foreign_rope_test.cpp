// Rotary settings of stretched positions in config.json: reading, writing, and refused settings.
// foreign_models_test.cpp compares their logits.
#include <gtest/gtest.h>

#include "core/io/json.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::foreign_rope_test {

using testing::contains;
using testing::error_of;

JsonValue llama(const JsonValue& rope) {
  return JsonValue::object({{"model_type", "llama"},
                            {"vocab_size", 40},
                            {"hidden_size", 8},
                            {"intermediate_size", 24},
                            {"num_hidden_layers", 1},
                            {"num_attention_heads", 2},
                            {"max_position_embeddings", 64},
                            {"rope_parameters", rope}});
}

testing::Settings rope_options(const JsonValue& config) {
  testing::Settings options;
  for (const auto& option : describe_foreign(config, "config.json").model.settings) {
    if (option.first.starts_with("pe.")) options.push_back(option);
  }
  return options;
}

// Checks the settings that a run with these options writes, and that they are read as the same options.
JsonValue written_back(const JsonValue& rope, std::int64_t positions = 64) {
  JsonValue source = llama(rope);
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
  JsonValue config = llama({}), scaling = yarn();
  scaling.remove("rope_theta");
  config.remove("rope_parameters");
  config.set("rope_theta", 500.0).set("rope_scaling", scaling);
  EXPECT_EQ(rope_options(config), rope_options(llama(yarn())));
  config = llama(yarn()).set("original_max_position_embeddings", 32);
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
    for (const auto& [own, value] : rope_options(llama(rope))) {
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
  const testing::Settings wanted{{"pe.rope.base", "10000"},
                                 {"pe.rope.stretch", "dynamic"},
                                 {"pe.rope.factor", "2"},
                                 {"pe.rope.trained-length", "64"}};
  EXPECT_EQ(rope_options(llama(rope)), wanted);
  EXPECT_EQ(written_back(rope).integer("max_position_embeddings"), 64);
}

void expect_refused(const JsonValue& rope, const std::string& why) {
  const std::string error = error_of([&] { describe_foreign(llama(rope), "config.json"); });
  EXPECT_TRUE(error.starts_with("[import] config.json: ") && contains(error, why)) << why << "\n" << error;
}

// A member set to a value, and why that is refused.
struct Case {
  const char *key, *value, *why;
};

TEST(StretchedRope, ContradictionsAreRefused) {
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
    expect_refused(yarn().set(key, parse_json(value, {}, "value")), why);
  }
}

}  // namespace tally::foreign_rope_test
