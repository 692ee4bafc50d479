// The commands check and new-encoding. tests/own_encoding builds and checks the output of new-encoding.
#include <gtest/gtest.h>

#include <set>

#include "tests/devices.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::check_test {

class CheckCommand : public Program {};
class NewEncoding : public Program {};

TEST_F(CheckCommand, TellsOfEveryPromise) {
  expect_parts(done("check --pe=alibi"),
               {"gradients", "causality", "parameters", "forms", "key-heads", "generation", "precision", "threads",
                "devices", "length", "\ncost        step ", "all promises are kept"});
  const JsonValue found = json("check --pe=hard --quiet");
  EXPECT_EQ(found.integer("wrong"), 0);
  EXPECT_EQ(found.elements("properties").size(), 10u);
  EXPECT_EQ(found.elements("properties")[0].string("found"), "-") << "gradients by a rule of its own";
  // Nothing about a machine's speed, except that times are above 0. Materialised attention needs more memory.
  const JsonValue& cost = found.at("cost");
  EXPECT_GE(cost.integer("rounds"), 3);
  EXPECT_GT(cost.real("step_min"), 0);
  EXPECT_LE(cost.real("step_min"), cost.real("step"));
  EXPECT_LE(cost.real("step"), cost.real("step_max"));
  EXPECT_GT(cost.real("memory"), 1);
}

// Given options are kept, the others are changed one at a time, and all are reported.
TEST_F(CheckCommand, ChecksTheEncodingAsConfigured) {
  const std::string text = done("check --only=forms --pe=alibi[window=4] --pe.learned");
  EXPECT_TRUE(text.starts_with("options     alibi[window=4] learned=true; each by itself: kv-heads=1, kv-heads=2\n"))
      << text;
  const std::string given = "alibi+cope p-max=3 gates=values";
  const JsonValue told = json("check --only=forms --pe alibi+cope --pe.cope.gates values --pe.p-max=3");
  EXPECT_EQ(told.string("options"), given);
  std::set<std::string> labels;
  for (const JsonValue& label : told.elements("variants")) labels.insert(label.string());
  EXPECT_TRUE(labels.contains(given + " learned=true")) << write_json(told);
  for (const std::string& label : labels) {
    EXPECT_TRUE(label.starts_with(given) && label.find("gates=", given.size()) == label.npos) << label;
  }
  // An option that is wrong only as configured is found: no other configuration is checked instead.
  for (const std::string wrong : {"--pe=alibi --pe.p-max=3", "--pe=cope --pe.gates=vales", "--pe.gates=keys", "",
                                  "--pe=rope --pe.rope.factor=2", "--pe=cope --model.width=8", "--pe=rpoe",
                                  "--pe=cope --only=gradients --against=rope", "--pe=alibi --against=rpoe"}) {
    EXPECT_EQ(tally("check " + wrong).code, 2) << wrong;
  }
}

TEST_F(CheckCommand, ChecksOnlySomeProperties) {
  const std::string some = done("check --pe=alibi --only=forms,gradients");
  expect_parts(some, {"\ngradients   ok ", "\nforms       ok ", " variants)\n", "\nthese promises are kept\n"});
  EXPECT_FALSE(holds(some, "causality") || holds(some, "\ncost ")) << some;
  refused("check --pe=cope --only=gradient", "no property 'gradient'; did you mean 'gradients'?");
}

// Encodings.HaveTheGradientsOfCentralDifferences checks all encodings; these cases check the command.
TEST_F(CheckCommand, ChecksGradientsOnEveryDevice) {
  std::vector<Device> devices = kernel_devices();
  devices.emplace_back();
  for (const Device device : devices) {
    const JsonValue found = json("check --only=gradients --pe=selective --device=" + to_text(device));
    EXPECT_EQ(found.integer("wrong"), 0) << to_text(device);
    EXPECT_EQ(found.elements("properties").front().string("found"), "ok") << to_text(device);
  }
  expect_parts(done("check --only=gradients --pe 0:none,1-2:cope@0-1,alibi@2"), {"gates=values", "gradients   ok "});
}

TEST_F(CheckCommand, HoldsAnEncodingAgainstAnother) {
  expect_parts(done("check --pe=none --against=none[window=4096]"), {"none is the same function as none[window=4096]"});
  // Options of both are accepted, and only shared options are changed.
  const Finished other = tally("check --pe=cope --against=cope[window=9] --pe.p-max=5");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(holds(other.out, "WRONG logits differ by ")) << other.out;
  EXPECT_EQ(other.err, "tally: [check] cope differs from cope[window=9]\n");
  const JsonValue named = json("check --pe=alibi --against=fox", 1);
  EXPECT_TRUE(
      holds(named.elements("properties")[0].string("text"), "blocks.0.position.alibi.forget.weight is unexpected"));
  refused("check --pe=alibi --against=alibi", "each with a name of its own");
}

TEST_F(NewEncoding, PrintsAFileUnderItsName) {
  expect_parts(done("new-encoding my-2nd-idea"),
               {"class My2ndIdeaEncoding final", "TALLY_ENCODING(my_2nd_idea, My2ndIdeaEncodingOptions,"});
  expect_parts(done("new-encoding my-idea --score-mod"), {"TALLY_SCORE_MOD(my_idea, MyIdeaScore);"});
  for (const std::string name : {"My-idea", "2nd", "my_idea", "-idea", "idea-", "my--idea", "../idea", "''"}) {
    EXPECT_EQ(tally("new-encoding " + name).code, 2) << name;
  }
  refused("new-encoding stick-breaking", "nn/position/stick_breaking.cpp");
}

}  // namespace tally::testing::check_test
