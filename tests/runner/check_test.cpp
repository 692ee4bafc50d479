// The commands check and new-encoding. tests/own_encoding builds and checks the output of new-encoding.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/devices.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace {

TEST(CheckCommand, TellsOfEveryPromise) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"check", "--pe=alibi"}, folder);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* name : {"gradients", "causality", "parameters", "forms", "generation", "precision", "threads",
                           "devices", "length", "all promises are kept"}) {
    EXPECT_TRUE(holds(result.out, name)) << name << "\n" << result.out;
  }
  const Finished json = run_tally({"check", "--pe=hard", "--json", "--quiet"}, folder);
  const JsonValue found = parse_json(json.out, {}, "stdout");
  EXPECT_EQ(found.integer("wrong"), 0);
  EXPECT_EQ(found.elements("properties").size(), 9u);
  EXPECT_EQ(found.elements("properties")[0].string("found"), "-") << "gradients by a rule of its own";
  EXPECT_EQ(run_tally({"check"}, folder).code, 2);
  EXPECT_EQ(run_tally({"check", "--pe=rpoe"}, folder).code, 2);
}

// Given options are kept, the others are changed one at a time, and all are reported.
TEST(CheckCommand, ChecksTheEncodingAsConfigured) {
  const TemporaryFolder folder;
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "check");
    return run_tally(words, folder);
  };
  const Finished text = check({"--pe=alibi[window=4]", "--pe.learned"});
  EXPECT_EQ(text.code, 0) << text.out << text.err;
  EXPECT_TRUE(text.out.starts_with("options     alibi[window=4] learned=true\n")) << text.out;
  const JsonValue json = json_of(check({"--pe", "alibi+cope", "--pe.cope.gates", "values", "--pe.p-max=3", "--json"}));
  EXPECT_EQ(json.string("options"), "alibi+cope p-max=3 gates=values");
  std::set<std::string> labels;
  for (const JsonValue& label : json.elements("variants")) labels.insert(label.string());
  EXPECT_TRUE(labels.contains("alibi+cope p-max=3 gates=values learned=true")) << write_json(json);
  for (const std::string& label : labels) {
    EXPECT_TRUE(label.starts_with("alibi+cope p-max=3 gates=values")) << label;
    EXPECT_TRUE(label.find("gates=", 31) == std::string::npos) << label;
  }
  // An option that is wrong only as configured is found: no other configuration is checked instead.
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--pe=alibi", "--pe.p-max=3"},
                                                {"--pe=cope", "--pe.gates=vales"},
                                                {"--pe.gates=keys"},
                                                {"--pe=rope", "--pe.rope.factor=2"},
                                                {"--pe=cope", "--model.width=8"}}) {
    EXPECT_EQ(check(wrong).code, 2) << wrong.back();
  }
  EXPECT_TRUE(holds(run_tally({"check", "--help", "--pe=cope"}, folder).out, "--pe.cope.p-max"));
}

TEST(CheckCommand, ChecksOnlySomeProperties) {
  const TemporaryFolder folder;
  const Finished some = run_tally({"check", "--pe=alibi", "--only=forms,gradients"}, folder);
  EXPECT_EQ(some.code, 0) << some.out << some.err;
  for (const char* part : {"\ngradients   ok ", "\nforms       ok ", "tiled and composed attention of 150",
                           " variants)\n", "\nthese promises are kept\n"}) {
    EXPECT_TRUE(holds(some.out, part)) << part << "\n" << some.out;
  }
  EXPECT_FALSE(holds(some.out, "causality")) << some.out;
  const Finished unknown = run_tally({"check", "--pe=cope", "--only=gradient"}, folder);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(holds(unknown.err, "no property 'gradient'; did you mean 'gradients'?")) << unknown.err;
  EXPECT_EQ(run_tally({"check", "--pe=cope", "--only=gradients", "--against=rope"}, folder).code, 2);
}

// Encodings.HaveTheGradientsOfCentralDifferences checks all encodings; these cases check the command.
TEST(CheckCommand, ChecksGradientsOnEveryDevice) {
  const TemporaryFolder folder;
  std::vector<Device> devices = kernel_devices();
  devices.emplace_back();
  for (const Device device : devices) {
    SCOPED_TRACE(to_text(device));
    const JsonValue json = json_of(
        run_tally({"check", "--only=gradients", "--device=" + to_text(device), "--pe=selective", "--json"}, folder));
    EXPECT_EQ(json.integer("wrong"), 0);
    EXPECT_EQ(json.elements("properties").front().string("found"), "ok");
  }
}

TEST(CheckCommand, HoldsAnEncodingAgainstAnother) {
  const TemporaryFolder folder;
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "check");
    return run_tally(words, folder);
  };
  const Finished same = check({"--pe=none", "--against=none[window=4096]"});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_TRUE(holds(same.out, "none is the same function as none[window=4096]")) << same.out;
  // Options of both are accepted, and only shared options are changed.
  const Finished other = check({"--pe=cope", "--against=cope[window=9]", "--pe.p-max=5"});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(holds(other.out, "WRONG logits differ by ")) << other.out;
  EXPECT_EQ(other.err, "tally: [check] cope differs from cope[window=9]\n");
  const Finished named = check({"--pe=alibi", "--against=fox", "--json"});
  EXPECT_EQ(named.code, 1);
  const JsonValue json = parse_json(named.out, {}, "stdout");
  EXPECT_EQ(json.string("against"), "fox");
  EXPECT_TRUE(
      holds(json.elements("properties")[0].string("text"), "blocks.0.position.alibi.forget.weight is unexpected"));
  EXPECT_EQ(check({"--pe=alibi", "--against=rpoe"}).code, 2);
  EXPECT_TRUE(holds(check({"--pe=alibi", "--against=alibi"}).err, "each with a name of its own"));
}

TEST(NewEncoding, PrintsAFileUnderItsName) {
  const TemporaryFolder folder;
  const Finished hooks = run_tally({"new-encoding", "my-2nd-idea"}, folder);
  EXPECT_EQ(hooks.code, 0);
  for (const char* part : {"class My2ndIdeaEncoding final", "TALLY_ENCODING(my_2nd_idea, My2ndIdeaEncodingOptions,"}) {
    EXPECT_TRUE(holds(hooks.out, part)) << hooks.out;
  }
  EXPECT_TRUE(holds(run_tally({"new-encoding", "my-idea", "--score-mod"}, folder).out,
                    "TALLY_SCORE_MOD(my_idea, MyIdeaScore);"));
  for (const char* name : {"My-idea", "2nd", "my_idea", "-idea", "idea-", "my--idea", "../idea", ""}) {
    EXPECT_EQ(run_tally({"new-encoding", name}, folder).code, 2) << name;
  }
  EXPECT_TRUE(holds(run_tally({"new-encoding", "stick-breaking"}, folder).err, "nn/position/stick_breaking.cpp"));
}

}  // namespace
}  // namespace tally::testing
