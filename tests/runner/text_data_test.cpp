// Runs with separate documents, and runs whose text was moved or damaged.
#include "tests/runner/text_runs.hpp"

namespace tally::testing::text_data_test {

class TextData : public TextRuns {
 protected:
  std::string last(const std::string& run) {
    return file(run + "/checkpoints/" + names_of_checkpoints(folder_ / run).back());
  }
};

TEST_F(TextData, SeparateDocumentsAreTheSameForAnyThreadsAndAfterAKill) {
  const std::string separate = "--task.documents=separate --micro-batch=2 --model.dropout=0.1 ";
  done(training("whole", separate));
  train_and_kill("killed", separate + "--threads=1");
  done("resume killed --quiet --threads=2");
  expect_same_run(folder_ / "killed", folder_ / "whole");
  done(training("joined", "--micro-batch=2 --model.dropout=0.1"));
  EXPECT_NE(last("whole"), last("joined"));
}

// Evaluations are equal to the last bit.
TEST_F(TextData, EvaluationsDoNotDependOnTheirBatch) {
  std::vector<std::string> found;
  for (const std::string batch : {"1", "3", "64"}) {
    done(training(batch, "--eval-batch=" + batch));
    found.push_back(write_json(file_json(batch + "/results.json").at("evaluations")) +
                    write_json(json("eval " + batch + " --lengths=8,16").at("evaluations")));
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

// The error names the remedy; the resumed run ends with the same bytes; a different text is refused.
TEST_F(TextData, RunsGoOnWhereTheirTextWasMovedTo) {
  done(training("whole"));
  train_and_kill("moved");
  done(
      "prepare other texts --quiet --tokenizer data/tokenizer.json --validation-part=0.2 --test-part=0.1 --exclude=^3");
  std::filesystem::rename(folder_ / "data", folder_ / "elsewhere");
  const std::string lost = "where its data was moved, 'tally resume RUN --data PATH' says where to";
  refused({{"resume moved", lost},
           {"eval moved", lost},
           {"resume moved --data other", "it was trained on other data: train: "}},
          1);
  done("resume moved --quiet --data elsewhere");
  EXPECT_EQ(last("moved"), last("whole"));

  // A finished run records the new path and keeps its results.
  const std::string results = file("whole/results.json");
  refused({{"resume whole --data other", "other data"}, {"eval whole", lost}}, 1);
  EXPECT_FALSE(holds(done("resume whole --data elsewhere"), "not applied"));
  EXPECT_EQ(file("whole/results.json"), results);
  done("eval whole --quiet");
}

TEST_F(TextData, DamagedDataIsNoWrongUsage) {
  done(training("trained"));
  const auto change = [&](const std::string& name) {
    std::string bytes = file(name);
    bytes[bytes.size() / 2] ^= 1;
    write_file(folder_ / name, bytes);
  };
  change("data/test.bin");
  refused("eval trained --split=test --count=1", "test.bin: its checksum is ", 1);
  change("data/train.bin");
  refused(training("run"), "train.bin: its checksum is ", 1);
  std::filesystem::resize_file(folder_ / "data/train.bin", std::filesystem::file_size(folder_ / "data/train.bin") - 2);
  refused(training("run"), "train.bin: holds ", 1);
  std::filesystem::remove(folder_ / "data/manifest.json");
  refused({{training("run"), "manifest.json is not there; 'tally prepare' makes such a folder"},
           {"train run --task=text --pe=none", "say which text: --data FOLDER"}});
  EXPECT_FALSE(exists("run"));
}

}  // namespace tally::testing::text_data_test
