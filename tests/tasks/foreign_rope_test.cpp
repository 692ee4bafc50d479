// Rotary settings with lists (longrope) in config.json: what they become, what they are written as, what is refused.
// Their logits are among those of foreign_models_test.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally {
namespace foreign_rope_test {

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
  // The older form: the length stands outside.
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
    return json.set("model_type", "llama").set("vocab_size", 40).set("max_position_embeddings", 1024);
  };
  const ForeignDescription description = describe_foreign(llama(rope_parameters()), "config.json");
  RunConfig config = config_of(description, "");
  JsonValue json = written(config);
  EXPECT_EQ(rope_options(json), expected);  // though the number of positions is another
  // Older versions look for the length outside, and take another factor unless attention's own is there.
  EXPECT_EQ(json.integer("original_max_position_embeddings"), 16);
  EXPECT_EQ(json.at("rope_scaling").real("attention_factor"), std::sqrt(1 + std::log(4.0) / std::log(16.0)));
  config.set("pe.rope.short-factors", "");  // of 1 each
  EXPECT_EQ(written(config).at("rope_scaling").at("short_factor"), list({1, 1}));
}

TEST(LongRopeSettings, ThatAreRefused) {
  const auto refused = [](const std::function<void(JsonValue&)>& change, std::string_view key, std::string_view why) {
    JsonValue rope = rope_parameters();
    change(rope);
    const std::string error = error_of([&] { describe_foreign(llama(rope), "config.json"); });
    for (const std::string_view part : {std::string_view("config.json: rope_parameters"), key, why}) {
      EXPECT_TRUE(contains(error, part)) << part << "\n" << error;
    }
  };
  const auto sets = [](std::string_view key, const JsonValue& value) {
    return [=](JsonValue& rope) { rope.set(key, value); };
  };
  refused([](JsonValue& rope) { rope.remove("short_factor"); }, "'short_factor'", "is missing");
  refused(sets("short_factor", list({1})), "'short_factor'", "has 1 number, but 4 dims are rotated; one is wanted");
  refused(sets("long_factor", list({1, 0})), "'long_factor'", "above 0");
  refused(sets("long_factor", list({1, -1})), "'long_factor'", "above 0");
  refused(sets("long_factor", 2.0), "'long_factor'", "array of numbers, not a real number");
  refused(sets("long_factor", JsonValue::array().push("1").push(1.0)), "'long_factor'", "not a string");
  refused(sets("factor", 0.5), "'factor'", "at least 1");
  refused(sets("attention_factor", 1.0), "'attention_factor'", "not there in tally");
  refused(sets("long_mscale", 1.2), "'long_mscale'", "may change");
  refused(sets("original_max_position_embeddings", 1), "'original_max_position_embeddings'", "too short");
  JsonValue config = llama(rope_parameters());
  config.set("original_max_position_embeddings", 32);
  EXPECT_TRUE(contains(error_of([&] { describe_foreign(config, "config.json"); }), "contradicts the same key outside"));
  JsonValue rope = rope_parameters();
  config = llama(rope.set("factor", 2.0)).set("original_max_position_embeddings", 16);
  EXPECT_TRUE(contains(error_of([&] { describe_foreign(config, "config.json"); }), "attention_factor decides"));
}

}  // namespace foreign_rope_test
}  // namespace tally
