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

}  // namespace tally::testing::text_data_test
