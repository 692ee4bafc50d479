// tally train NEW --from RUN: the weights of a finished run as the start of another run.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::from_test {

class TrainFrom : public Program {
 protected:
  std::string checkpoint(const std::string& run, int step) {
    return folder_ / formatted("{}/checkpoints/step-0000000{}.safetensors", run, step);
  }
  static std::string from(const std::string& run, const std::string& options, const std::string& source = "rope") {
    return formatted("train {} --from {} --threads=1 {}", run, source, options);
  }
};

TEST_F(TrainFrom, KeepsWeightsAndSettingsAndChangesTheEncoding) {
  done(tiny("rope", "rope", "--pe.base=100"));
  const auto checkpoints = checkpoints_of(folder_ / "rope");
  const std::string config = file("rope/config.json"), metrics = file("rope/metrics.jsonl");
  expect_parts(done(from("cope", "--pe cope --pe.p-max=3 --steps=2 --lr=0.01")),
               {"parameters from ", "rope at step 4; new: position.cope.table (2 layers); dropped: none\n", "steps=2",
                "optimiser.lr=0.01", "model.width=8"});
  const SafetensorsFile source = SafetensorsFile::open(checkpoint("rope", 4)),
                        start = SafetensorsFile::open(checkpoint("cope", 0));
  std::size_t same = 0;
  for (const SafetensorsEntry& entry : start.entries()) {
    if (holds(entry.name, "position.")) continue;
    EXPECT_EQ(start.read(entry.name).to_vector<float>(), source.read(entry.name).to_vector<float>()) << entry.name;
    ++same;
  }
  EXPECT_EQ(same + 2, start.entries().size());
  // The run that the weights come from is only read, and the new one records it.
  EXPECT_TRUE(checkpoints_of(folder_ / "rope") == checkpoints);
  EXPECT_EQ(file("rope/config.json"), config);
  EXPECT_EQ(file("rope/metrics.jsonl"), metrics);
  const JsonValue origin = file_json("cope/config.json").at("from");
  EXPECT_EQ(origin.string("run"), folder_ / "rope");
  EXPECT_EQ(origin.integer("step"), 4);
  EXPECT_EQ(origin.string("label"), "rope");
  EXPECT_EQ(file_json("cope/config.json").at("run").integer("batch"), 4);

  // What only the old encoding has is dropped. Reports do not mix the run with others of its encoding.
  expect_parts(done(from("none", "--pe none --model.qk-norm=full", "cope")),
               {"new: attention.query_norm.weight (2 layers), ", "; dropped: position.cope.table (2 layers)\n"});
  done(tiny("plain", "none"));
  expect_parts(done("report none plain"), {"none from cope from rope", "| none "});
}

TEST_F(TrainFrom, ResumesToTheSameBits) {
  done(tiny("rope", "rope"));
  done(from("whole", "--pe none --quiet"));
  std::filesystem::copy(folder_ / "whole", folder_ / "cut", std::filesystem::copy_options::recursive);
  for (const char* name : {"cut/checkpoints/step-00000004.safetensors", "cut/results.json"}) {
    std::filesystem::remove(folder_ / name);
  }
  std::filesystem::rename(folder_ / "rope", folder_ / "moved");
  done("resume cut --quiet --threads=1");
  expect_same_run(folder_ / "cut", folder_ / "whole");
  done("resume cut --restart --quiet --threads=1");
  expect_same_run(folder_ / "cut", folder_ / "whole");
  std::filesystem::remove(checkpoint("cut", 0));
  refused("resume cut --restart --quiet", "step-00000000.safetensors", 1);
}

TEST_F(TrainFrom, RefusesWhatDoesNotFit) {
  done(tiny("rope", "rope"));
  done(tiny("absolute", "absolute"));
  const Finished stopped = tally("train rope --from absolute --pe none");
  EXPECT_EQ(stopped.code, 1);
  EXPECT_TRUE(holds(stopped.err, "'rope' holds a run already")) << stopped.err;
  std::filesystem::copy(folder_ / "rope", folder_ / "unfinished", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder_ / "unfinished/results.json");
  refused({{from("new", "--pe none", "unfinished"), "the run 'unfinished' is not finished; 'tally resume unfinished'"},
           {from("new", "--pe none", "nowhere"), "there is no folder 'nowhere'"},
           {from("new", "--pe none --model.heads=4"), "it was made with model.heads 2, the configuration has 4"},
           {from("new", "--pe none --task=counting"), "--from"},
           {from("rope", "--pe none --force"), "the same folder"},
           {from("new", "--pe absolute --length=32", "absolute"),
            "position.absolute.table is [16, 8] in the stored model and [32, 8] in the new one"}});
  EXPECT_FALSE(exists("new"));
}

}  // namespace tally::testing::from_test
