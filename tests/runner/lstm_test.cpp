// Commands with a model without attention.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::lstm_test {

class LstmRun : public Program {
 protected:
  static std::string training(const std::string& run, const std::string& options = "") {
    return "train " + run +
           " --task=flip-flop --model.kind=lstm --preset=quick --quiet --length=16 --model.width=8 --model.layers=1"
           " --batch=4 --eval-every=2 --log-every=1 --save-every=2 --optimiser.warmup=0 --task.eval-count=6"
           " --task.sparse-count=5 --task.dense-count=4 --eval-count=0 --threads=1 --optimiser.schedule=constant " +
           (holds(options, "--steps") ? "" : "--steps=4 ") + options;
  }
};

TEST_F(LstmRun, GoesThroughEveryCommand) {
  EXPECT_EQ(json(training("run", "--dry-run")).integer("parameters"), 5 * 8 + 4 * 8 * (8 + 8 + 1) + 5 * 8);
  done(training("run"));
  EXPECT_EQ(json("eval run --lengths 24,48").elements("evaluations").size(), 6u);
  EXPECT_TRUE(json("inspect run --text=w0i1r").elements("attention").empty());
  done("inspect run --out a.safetensors --gradients");
  const SafetensorsFile dump = SafetensorsFile::open(folder_ / "a.safetensors");
  EXPECT_TRUE(dump.read("gradients.model.layers.0.recurrent.weight").shape() == (Shape{32, 8}));
  for (const auto& entry : dump.entries()) EXPECT_FALSE(holds(entry.name, "blocks.")) << entry.name;
  expect_parts(done("report run"), {"| lstm"});
  done("bench step --pe=none --model.kind=lstm --model.width=8 --batch=2 --length=16 --steps=1 --warmup=0");
  const std::string none = "no attention to look at";
  refused({{"inspect run", none}, {"inspect run --out page.html", none}}, 1);
  refused("resume run --model.kind transformer --steps 6", "model.kind");
}

TEST_F(LstmRun, ResumesToTheSameBits) {
  done(training("whole"));
  done(training("run", "--steps=2"));
  done("resume run --steps 4 --threads 3 --quiet");
  const std::string last = "/checkpoints/step-00000004.safetensors";
  EXPECT_TRUE(file("run" + last) == file("whole" + last));
  EXPECT_EQ(results_of(folder_ / "run"), results_of(folder_ / "whole"));
}

TEST_F(LstmRun, RefusesWhatHasNoEffect) {
  const std::string idle = "has no effect with kind = lstm";
  refused({{training("run", "--pe=cope"), "pe = cope " + idle},
           {training("run", "--model.heads=2"), idle},
           {training("run", "--model.norm=rms"), idle},
           {training("run", "--model.attention=composed"), idle},
           {"bench attention --pe=none --model.kind=lstm", "unknown option '--model.kind'"}});
}

}  // namespace tally::testing::lstm_test
