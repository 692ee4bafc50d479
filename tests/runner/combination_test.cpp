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

TEST_F(Combinations, AreSweptWithSemicolons) {
  done(tiny("sweep", "0:none,1:cope;cope@0,rope@1;none", "--seeds=1", "sweep"));
  for (const std::string name : {"0:none,1:cope-seed1", "cope@0,rope@1-seed1", "none-seed1"}) {
    EXPECT_TRUE(exists("sweep/" + name + "/results.json")) << name;
  }
}

}  // namespace tally::testing::combination_test
