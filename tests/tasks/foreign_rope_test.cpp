// Rotary settings of stretched positions in config.json: reading, writing, and refused settings.
// foreign_models_test.cpp compares their logits.
#include <gtest/gtest.h>

#include "core/io/json.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::foreign_rope_test {

using testing::contains;
using testing::error_of;

JsonValue list(const std::vector<double>& numbers) {
  JsonValue array = JsonValue::array();
  for (const double number : numbers) array.push(number);
  return array;
}

// Two planes a head; 64 tokens, trained on 16.
JsonValue rope_parameters() {
  return JsonValue::object({{"rope_type", "longrope"},
                            {"rope_theta", 500.0},
                            {"original_max_position_embeddings", 16},
                            {"short_factor", list({1, 1.5})},
                            {"long_factor", list({1.25, 7e-6})}});
}

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

const testing::Settings expected{
    {"pe.rope.base", "500"},          {"pe.rope.stretch", "longrope"},    {"pe.rope.factor", "4"},
    {"pe.rope.trained-length", "16"}, {"pe.rope.short-factors", "1/1.5"}, {"pe.rope.long-factors", "1.25/7e-06"}};

TEST(LongRopeSettings, BecomeOptions) {
  EXPECT_EQ(rope_options(llama(rope_parameters())), expected);
  // The older form has the length outside.
  JsonValue config = llama({}), scaling = rope_parameters();
  for (const char* key : {"rope_type", "rope_theta", "original_max_position_embeddings"}) scaling.remove(key);
  scaling.set("type", "longrope");
  config.remove("rope_parameters");
  config.set("rope_theta", 500.0).set("original_max_position_embeddings", 16).set("rope_scaling", scaling);
  EXPECT_EQ(rope_options(config), expected);
  JsonValue with_factor = rope_parameters();
  with_factor.set("factor", 2.0).set("attention_factor", std::sqrt(1.25));  // ln 2 / ln 16
  testing::Settings two = expected;
  two[2].second = "2";
  EXPECT_EQ(rope_options(llama(with_factor)), two);
}

TEST(LongRopeSettings, AreWrittenAsTheyWereRead) {
  const auto written = [](const RunConfig& config) {
    OwnSettings settings(config, "llama");
    JsonValue json = find_family("llama").write(settings);
    settings.refuse_unread();
    if (!json.contains("max_position_embeddings")) json.set("max_position_embeddings", 1024);
    return json.set("model_type", "llama").set("vocab_size", 40);
  };
  const ForeignDescription description = describe_foreign(llama(rope_parameters()), "config.json");
  RunConfig config = config_of(description, "");
  JsonValue json = written(config);
  EXPECT_EQ(rope_options(json), expected);
  EXPECT_EQ(json.at("rope_scaling").string("type"), "longrope");
  EXPECT_EQ(json.at("rope_scaling").string("rope_type"), "longrope");
  EXPECT_EQ(json.integer("max_position_embeddings"), 64);
  // Older versions look for the length outside. They use another factor unless there is an attention factor.
  EXPECT_EQ(json.integer("original_max_position_embeddings"), 16);
  EXPECT_EQ(json.at("rope_scaling").real("attention_factor"), std::sqrt(1 + std::log(4.0) / std::log(16.0)));
  config.set("pe.rope.short-factors", "");  // all 1
  EXPECT_EQ(written(config).at("rope_scaling").at("short_factor"), list({1, 1}));
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

TEST(StretchedRope, AMissingLengthIsNoted) {
  JsonValue without = yarn();
  without.remove("original_max_position_embeddings");
  const std::vector<std::string> notes = describe_foreign(llama(without), "config.json").notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "the trained length is taken to be max_position_embeddings = 64"));
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
        {"rope_type", "null", "does not say how"},
        {"rope_type", R"("dynamic")", "contradicts max_position_embeddings = 64"},
        {"rope_type", R"("mrope")", "'mrope' is not there in tally"}}) {
    expect_refused(yarn().set(key, parse_json(value, {}, "value")), why);
  }
}

TEST(LongRopeSettings, ThatAreRefused) {
  for (const auto& [key, value, why] : {Case{"short_factor", "null", "'short_factor' is missing"},
                                        {"short_factor", "[1]", "has 1 number, but 4 dims are rotated; one is wanted"},
                                        {"long_factor", "[1, 0]", "above 0"},
                                        {"long_factor", "[1, -1]", "above 0"},
                                        {"long_factor", "2.0", "array of numbers, not a real number"},
                                        {"long_factor", R"(["1", 1.0])", "not a string"},
                                        {"factor", "0.5", "at least 1"},
                                        {"attention_factor", "0.0", "must be above 0"},
                                        {"long_mscale", "1.2", "may change"},
                                        {"original_max_position_embeddings", "65", "more than"},
                                        {"original_max_position_embeddings", "1", "too short"}}) {
    expect_refused(rope_parameters().set(key, parse_json(value, {}, "value")), why);
  }
  JsonValue config = llama(rope_parameters());
  config.set("original_max_position_embeddings", 32);
  EXPECT_TRUE(contains(error_of([&] { describe_foreign(config, "config.json"); }), "contradicts the same key outside"));
  config = llama(rope_parameters().set("factor", 2.0)).set("original_max_position_embeddings", 16);
  EXPECT_TRUE(contains(error_of([&] { describe_foreign(config, "config.json"); }), "attention_factor decides"));
}

}  // namespace tally::foreign_rope_test
