// Models that are not a plain transformer with one encoding, through the program: encodings by layer and by groups of
// heads; an LSTM; random positions of training batches.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::models_test {

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

TEST_F(LstmRun, RefusesWhatHasNoEffect) {
  const std::string idle = "has no effect with kind = lstm";
  refused({{training("run", "--pe=cope"), "pe = cope " + idle},
           {training("run", "--model.heads=2"), idle},
           {training("run", "--model.norm=rms"), idle},
           {training("run", "--model.attention=composed"), idle},
           {"bench attention --pe=none --model.kind=lstm", "unknown option '--model.kind'"}});
}

class RandomPositionsRun : public Program {
 protected:
  static std::string drawing(const std::string& run, const std::string& encoding, const std::string& more = "",
                             const std::string& kind = "integers", int range = 64) {
    return tiny(run, encoding, formatted("--random-positions={} --position-range={} {}", kind, range, more));
  }
};

TEST_F(RandomPositionsRun, HasTheSameBitsForAnyThreadsAndAfterAResume) {
  done(drawing("one", "rope"));
  done(drawing("two", "rope", "--threads=2"));
  expect_same_run(folder_ / "two", folder_ / "one");
  for (const char* name : {"two/checkpoints/step-00000004.safetensors", "two/results.json"}) {
    std::filesystem::remove(folder_ / name);
  }
  done("resume two --quiet --threads=1");
  expect_same_run(folder_ / "two", folder_ / "one");
  // A table of positions has a row for each of them.
  done(drawing("table", "absolute"));
  EXPECT_EQ(file_json("table/config.json").at("run").string("random-positions"), "integers");
  done("eval table --lengths=64 --count=2");
}

TEST_F(RandomPositionsRun, IsAnotherRunThanWithConsecutivePositions) {
  done(tiny("plain", "alibi"));
  done(drawing("drawn", "alibi"));
  done(drawing("reals", "alibi", "", "reals"));
  done(drawing("evaluated", "alibi", "--eval-random-positions"));
  const auto last = [&](const std::string& run) { return file(run + "/checkpoints/step-00000004.safetensors"); };
  EXPECT_NE(last("drawn"), last("plain"));
  EXPECT_NE(last("reals"), last("drawn"));
  EXPECT_EQ(last("evaluated"), last("drawn"));
  EXPECT_NE(results_of(folder_ / "evaluated"), results_of(folder_ / "drawn"));
  // Another process evaluates at the same positions.
  EXPECT_EQ(json("eval evaluated --split=ood-sparse").elements("evaluations")[0].real("loss"),
            json("eval evaluated --split=ood-sparse").elements("evaluations")[0].real("loss"));
}

TEST_F(RandomPositionsRun, IsRefusedWithoutAnEncodingThatReadsPositions) {
  refused({{drawing("run", "t5"), "the number of tokens between query and key"},
           {drawing("run", "cope"), "cope reads no positions, so random positions have no effect"},
           {drawing("run", "none", "--model.kind=lstm --model.heads=4"), "reads no positions"},
           {drawing("run", "absolute", "", "reals"), "choose random-positions = integers"},
           {drawing("run", "rope", "", "integers", 16),
            "random-positions = integers has no effect on sequences of 16 tokens with a position-range of 16"},
           {tiny("run", "rope", "--position-range=32"), "position-range = 32 has no effect"}});
  EXPECT_FALSE(exists("run"));
}

}  // namespace tally::testing::models_test
