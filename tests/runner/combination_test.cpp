// Encodings by layer and by groups of heads, through the program: trained and resumed, described, swept.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::combination_test {

class Combinations : public Program {};

TEST_F(Combinations, AreTrainedSavedAndResumed) {
  const auto training = [&](const std::string& run, const std::string& steps) {
    return tiny(run, "1:alibi@1,cope@0,0:rope",
                "--pe.p-max=5 --pe.alibi.learned --optimiser.schedule=constant --steps=" + steps);
  };
  done(training("straight", "8"));
  done(training("run", "4"));
  const JsonValue config = file_json("run/config.json");
  EXPECT_EQ(config.string("pe"), "0:rope,1:cope@0,alibi@1");
  EXPECT_EQ(config.at("pe-options").at("cope").integer("p-max"), 5);
  EXPECT_TRUE(config.at("pe-options").at("alibi").at("learned").boolean());
  for (const std::string pe : {"cope", "0:rope,1:cope", "0:rope,1:alibi@0,cope@1"}) {
    EXPECT_EQ(tally("resume run --quiet --pe=" + pe).code, 2) << pe;
  }
  done("resume run --quiet --steps=8 --threads=1 --pe=0:rope,1:cope@0,alibi@1");

  const std::string last = "/checkpoints/step-00000008.safetensors";
  const SafetensorsFile checkpoint = SafetensorsFile::open(folder_ / "run" + last);
  EXPECT_EQ(to_text(checkpoint.find("model.blocks.1.position.cope.table")->shape), "[6, 4]");
  EXPECT_EQ(to_text(checkpoint.find("model.blocks.1.position.alibi.slopes")->shape), "[1]");
  EXPECT_EQ(file("run" + last), file("straight" + last));

  // Only the head with gates distinguishes positions.
  const JsonValue traced = json("inspect run --text=w0i1r");
  for (const JsonValue& head : traced.elements("attention")) {
    const bool gated = head.integer("layer") == 1 && head.integer("head") == 0;
    EXPECT_EQ(head.elements("keys")[0].contains("position"), gated);
  }
  expect_parts(done("report run straight"), {"0:rope,1:cope@0,alibi@1"});
}

// tests/nn/encoding_choice_test.cpp has the messages. Every command refuses the same encodings with the same message.
TEST_F(Combinations, AreRefusedAlikeByEveryCommand) {
  refused(tiny("run", "0:coep,1:none"), "did you mean 'cope'?");
  for (const std::string pe : {"0:cope", "cope@0-1,rope@1", "0:rope,1:cope@0,hard+stick-breaking@1"}) {
    const Finished trained = tally(tiny("run", pe));
    EXPECT_EQ(trained.code, 2) << pe;
    for (const std::string command : {"bench step --dry-run --pe ", "bench step --pe ", "bench attention --pe "}) {
      const Finished result = tally(command + pe + " --model.layers=2 --model.width=8 --model.heads=2 --length=8");
      EXPECT_EQ(result.code, 2) << command << pe;
      EXPECT_EQ(result.err, trained.err) << command;
      EXPECT_EQ(result.out, "") << command;
    }
  }
  for (const std::string command : {"describe ", "check --pe "}) {
    refused(command + "hard+stick-breaking", "two parts each take the place");
  }
  const std::string question = "option p-max is ambiguous: write cope.p-max or nexus.p-max";
  refused(tiny("run", "cope+nexus", "--pe.p-max=3"), question);
  refused("bench step --pe=cope+nexus --pe.p-max=3", question);
  const std::string help = done("train --pe=cope+nexus --help");
  EXPECT_TRUE(holds(help, "--pe.nexus.p-max") && !holds(help, "--pe.p-max")) << help;
  EXPECT_FALSE(exists("run"));
}

// Also when only the combination needs memory for all pairs; with the options of a run.
TEST_F(Combinations, SayWhereMemoryGrowsWithTheSquareOfTheLength) {
  const std::string composed = " uses reference attention: memory grows with the square of",
                    tiled = " uses fused attention and a number for each pair: memory grows with the square of";
  expect_parts(done("describe wall+tra"), {"tra+wall" + tiled});
  const std::string by_layer = done("describe 0:cope+rope,1:dape2+rope,2:mta");
  EXPECT_TRUE(holds(by_layer, "dape2+rope" + composed) && !holds(by_layer, "cope+rope is computed")) << by_layer;
  const auto planned = [&](const std::string& option) {
    return done("train run --task=flip-flop --preset=quick --pe=alibi+ssmax --dry-run --pe.whole=" + option);
  };
  expect_parts(planned("true"), {"note: alibi+ssmax" + composed});
  EXPECT_FALSE(holds(planned("false"), "note: alibi+ssmax"));
}

TEST_F(Combinations, AreDescribed) {
  const std::string text = done("describe 0:rope,1-3:cope@0-1,alibi@2-3");
  expect_parts(text, {"layers 0, all heads: rope\n", "layers 1-3, heads 2-3: alibi\n", "4 layers, 4 heads",
                      "  model.blocks.3.position.cope.table  [65, d]\n", "name     alibi", "name     rope"});
  EXPECT_FALSE(holds(text, "blocks.0.position"));
  refused({{"describe cope+rpe", "rpe"}, {"describe nope", "'nope'; here it is 'none'"}});
}

TEST_F(Combinations, AreSweptWithSemicolons) {
  done(tiny("sweep", "0:none,1:cope;cope@0,rope@1;none", "--seeds=1", "sweep"));
  for (const std::string name : {"0:none,1:cope-seed1", "cope@0,rope@1-seed1", "none-seed1"}) {
    EXPECT_TRUE(exists("sweep/" + name + "/results.json")) << name;
  }
}

}  // namespace tally::testing::combination_test
