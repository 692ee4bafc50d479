// --random-positions: runs that draw the positions of their training batches.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::random_positions_test {

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

}  // namespace tally::testing::random_positions_test
