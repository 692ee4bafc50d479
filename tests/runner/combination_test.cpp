// Encodings by layer and by groups of heads, through the program: trained, killed and resumed, described, swept.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/safetensors.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace combination_test {

constexpr const char* mixed = "0:rope,1:cope@0,alibi@1";

TEST(Combinations, AreTrainedSavedAndResumed) {
  const TemporaryFolder folder;
  const auto training = [&](const std::string& run, const std::string& steps) {
    return tiny_training(run, "1:alibi@1,cope@0,0:rope",
                         {steps, "--pe.p-max=5", "--pe.alibi.learned", "--optimiser.schedule=constant"});
  };
  const std::string run = folder / "run", straight = folder / "straight";
  ASSERT_EQ(run_tally(training(straight, "--steps=8"), folder).code, 0);
  ASSERT_EQ(run_tally(training(run, "--steps=4"), folder).code, 0);
  const JsonValue config = parse_json(read_file(run + "/config.json"), {}, "config");
  EXPECT_EQ(config.string("pe"), mixed);
  EXPECT_EQ(config.at("pe-options").at("cope").integer("p-max"), 5);
  EXPECT_TRUE(config.at("pe-options").at("alibi").at("learned").boolean());
  for (const std::string pe : {"cope", "0:rope,1:cope", "0:rope,1:alibi@0,cope@1"}) {
    EXPECT_EQ(run_tally({"resume", run, "--quiet", "--pe=" + pe}, folder).code, 2) << pe;
  }
  const Finished resumed =
      run_tally({"resume", run, "--quiet", "--steps=8", "--threads=1", "--pe=0:rope,1:cope@0,alibi@1"}, folder);
  ASSERT_EQ(resumed.code, 0) << resumed.err;

  const std::string last = "/checkpoints/step-00000008.safetensors";
  const SafetensorsFile checkpoint = SafetensorsFile::open(run + last);
  EXPECT_EQ(to_text(checkpoint.find("model.blocks.1.position.cope.table")->shape), "[6, 4]");
  EXPECT_EQ(to_text(checkpoint.find("model.blocks.1.position.alibi.slopes")->shape), "[1]");
  EXPECT_EQ(read_file(run + last), read_file(straight + last));

  // Only the head with gates distinguishes positions.
  const Finished predicted = run_tally({"inspect", run, "--text=w0i1r", "--json"}, folder);
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const JsonValue prediction = parse_json(predicted.out, {}, "stdout");
  for (const JsonValue& head : prediction.elements("attention")) {
    const bool gated = head.integer("layer") == 1 && head.integer("head") == 0;
    EXPECT_EQ(head.elements("keys")[0].contains("position"), gated);
  }
  const Finished report = run_tally({"report", run, straight}, folder);
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_TRUE(holds(report.out, mixed)) << report.out;
}

TEST(Combinations, AreWrongUsageWhereTheyDoNotFit) {
  const TemporaryFolder folder;
  for (const auto& [pe, message] : {std::pair{"0:cope", "names nothing for layer 1"},
                                    {"0-2:cope", "names layer 2, but the model has 2 layers"},
                                    {"cope@0", "names nothing for head 1 of layer 0"},
                                    {"cope@0-1,rope@1", "names head 1 of layer 0 twice"},
                                    {"0:coep,1:none", "did you mean 'cope'?"},
                                    {"hard+stick-breaking", "two parts each take the place"},
                                    {"0:none,1:hard+stick-breaking", "1:hard+stick-breaking: two parts each take"},
                                    {"x:cope", "'x' in 'x:cope' names no layers"}}) {
    const Finished result = run_tally(tiny_training(folder / "run", pe), folder);
    EXPECT_EQ(result.code, 2) << pe;
    EXPECT_TRUE(holds(result.err, message)) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  }
}

// Every command refuses the same encodings as training, with the same message.
TEST(Combinations, AreRefusedAlikeByEveryCommand) {
  const TemporaryFolder folder;
  for (const std::string pe : {"hard+stick-breaking", "0:rope,1:cope@0,hard+stick-breaking@1"}) {
    const Finished trained = run_tally(tiny_training(folder / "run", pe), folder);
    EXPECT_EQ(trained.code, 2) << pe;
    EXPECT_TRUE(holds(trained.err, " each ")) << trained.err;
    const std::vector<std::string> small{"--model.layers=2", "--model.width=8", "--model.heads=2", "--length=8"};
    for (std::vector<std::string> words : {std::vector<std::string>{"describe", pe},
                                           {"check", "--pe", pe},
                                           {"bench", "step", "--dry-run", "--pe", pe},
                                           {"bench", "step", "--pe", pe},
                                           {"bench", "attention", "--pe", pe}}) {
      if (words[0] == "bench") words.insert(words.end(), small.begin(), small.end());
      const Finished result = run_tally(words, folder);
      EXPECT_EQ(result.code, 2) << words[0] << " " << words[1] << " " << pe;
      EXPECT_EQ(result.err, trained.err) << words[0] << " " << words[1];
      EXPECT_EQ(result.out, "") << words[0] << " " << words[1];
    }
  }
}

TEST(Combinations, AskWhoseOptionIsMeant) {
  const TemporaryFolder folder;
  const std::string question = "option p-max is ambiguous: write cope.p-max or nexus.p-max";
  for (const char* option : {"--pe.p-max=3", "--pe.p-max"}) {
    const Finished result = run_tally(tiny_training(folder / "run", "cope+nexus", {option, "3"}), folder);
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(holds(result.err, question)) << result.err;
  }
  const Finished timed = run_tally({"bench", "step", "--pe=cope+nexus", "--pe.p-max=3"}, folder);
  EXPECT_TRUE(timed.code == 2 && holds(timed.err, question)) << timed.err;
  const Finished help = run_tally({"train", "--pe=cope+nexus", "--help"}, folder);
  EXPECT_TRUE(holds(help.out, "--pe.nexus.p-max") && !holds(help.out, "--pe.p-max")) << help.out;
}

TEST(Combinations, HintAtOtherNames) {
  const TemporaryFolder folder;
  const Finished unknown = run_tally({"describe", "nope"}, folder);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(holds(unknown.err, "'nope'; here it is 'none'")) << unknown.err;
}

TEST(Combinations, AreDescribed) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"describe", "0:rope,1-3:cope@0-1,alibi@2-3"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"layers 0, all heads: rope\n", "layers 1-3, heads 2-3: alibi\n", "4 layers, 4 heads",
                           "  model.blocks.3.position.cope.table  [65, d]\n", "name     alibi", "name     rope"}) {
    EXPECT_TRUE(holds(result.out, part)) << part << "\n" << result.out;
  }
  EXPECT_FALSE(holds(result.out, "blocks.0.position"));
  EXPECT_TRUE(holds(run_tally({"describe", "cope+rope"}, folder).out, "all layers, all heads: cope+rope"));
  EXPECT_EQ(run_tally({"describe", "cope+rpe"}, folder).code, 2);
}

TEST(Combinations, AreSweptWithSemicolons) {
  const TemporaryFolder folder;
  std::vector<std::string> words = tiny_training(folder / "sweep", "0:none,1:cope;cope@0,rope@1;none", {"--seeds=1"});
  words[0] = "sweep";
  std::erase(words, "--quiet");
  const Finished result = run_tally(words, folder);
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  for (const char* name : {"0:none,1:cope-seed1", "cope@0,rope@1-seed1", "none-seed1"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / formatted("sweep/{}/results.json", name))) << name;
  }
}

TEST(Combinations, HaveTheirGradientsChecked) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"check", "--only=gradients", "--pe", "0:none,1-2:cope@0-1,alibi@2"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "gates=values") && holds(result.out, "gradients   ok ")) << result.out;
}

}  // namespace combination_test
}  // namespace tally::testing
