// Runs with separate documents, and runs whose text was moved.
#include "core/io/json.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/text_runs.hpp"

namespace tally::testing {
namespace text_data_test {

class TextData : public TextRuns {
 protected:
  // Killed after its second checkpoint.
  void train_and_kill(const std::string& run, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = training(run, more);
    words.insert(words.begin(), TALLY_RUNNER);
    const pid_t process = start_program(words, folder_, run);
    EXPECT_TRUE(comes_true([&] { return names_of_checkpoints(folder_ / run).size() >= 2; }));
    send_signal(process, SIGKILL);
    finish_program(process, folder_, run);
  }
  Finished resume(const std::string& run, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"resume", folder_ / run, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  }
};

TEST_F(TextData, SeparateDocumentsAreTheSameForAnyThreadsAndAfterAKill) {
  const std::vector<std::string> separate{"--task.documents=separate", "--micro-batch=2", "--model.dropout=0.1",
                                          "--optimiser.schedule=cosine", "--optimiser.lr-floor=0.1"};
  ASSERT_EQ(run_tally(training("whole", separate), folder_).code, 0);
  std::vector<std::string> words = separate;
  words.emplace_back("--threads=1");
  train_and_kill("killed", words);
  const Finished resumed = resume("killed", {"--threads=2"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_run(folder_ / "killed", folder_ / "whole");
  ASSERT_EQ(run_tally(training("joined", {"--micro-batch=2", "--model.dropout=0.1"}), folder_).code, 0);
  const auto last = [&](const std::string& run) {
    return read_file(folder_ / formatted("{}/checkpoints/{}", run, names_of_checkpoints(folder_ / run).back()));
  };
  EXPECT_NE(last("whole"), last("joined"));
}

// Evaluations are equal to the last bit.
TEST_F(TextData, EvaluationsDoNotDependOnTheirBatch) {
  std::vector<JsonValue> found;
  for (const char* batch : {"1", "3", "64"}) {
    const std::string run = formatted("batch-{}", batch);
    ASSERT_EQ(run_tally(training(run, {formatted("--eval-batch={}", batch)}), folder_).code, 0);
    found.push_back(read_json(folder_ / formatted("{}/results.json", run)).at("evaluations"));
    const JsonValue eval = json_of({"eval", folder_ / run, "--lengths=8,16"}, folder_);
    found.back().push(eval.at("evaluations"));
  }
  EXPECT_TRUE(found[0] == found[1]) << write_json(found[0]) << "\n" << write_json(found[1]);
  EXPECT_TRUE(found[0] == found[2]) << write_json(found[0]) << "\n" << write_json(found[2]);
}

// The error names the remedy; the resumed run ends with the same bits; a different text is refused.
TEST_F(TextData, RunsGoOnWhereTheirTextWasMovedTo) {
  ASSERT_EQ(run_tally(training("whole"), folder_).code, 0);
  train_and_kill("moved");
  const Finished made = prepare("other", {"--tokenizer", folder_ / "data/tokenizer.json", "--validation-part=0.2",
                                          "--test-part=0.1", "--exclude=^3"});
  ASSERT_EQ(made.code, 0) << made.err;
  fs::rename(folder_ / "data", folder_ / "elsewhere");

  for (const char* command : {"resume", "eval"}) {
    const Finished lost = run_tally({command, folder_ / "moved", "--quiet"}, folder_);
    EXPECT_EQ(lost.code, 1);
    EXPECT_TRUE(holds(lost.err, "where its data was moved, 'tally resume RUN --data PATH' says where to")) << lost.err;
  }
  const Finished other = resume("moved", {"--data", folder_ / "other"});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(holds(other.err, "it was trained on other data: train: ")) << other.err;
  const Finished resumed = resume("moved", {"--data", folder_ / "elsewhere"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  for (const std::string& name : names_of_checkpoints(folder_ / "whole")) {
    const std::string file = formatted("/checkpoints/{}", name);
    EXPECT_EQ(read_file(folder_ / ("moved" + file)), read_file(folder_ / ("whole" + file))) << name;
  }

  // A finished run records the new path and keeps its results.
  const std::string results = read_file(folder_ / "whole/results.json");
  EXPECT_EQ(resume("whole", {"--data", folder_ / "other"}).code, 1);
  EXPECT_EQ(run_tally({"eval", folder_ / "whole", "--quiet"}, folder_).code, 1);
  const Finished told = resume("whole", {"--data", folder_ / "elsewhere"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_FALSE(holds(told.out, "not applied")) << told.out;
  EXPECT_EQ(read_file(folder_ / "whole/results.json"), results);
  EXPECT_EQ(run_tally({"eval", folder_ / "whole", "--quiet"}, folder_).code, 0);
}

}  // namespace text_data_test
}  // namespace tally::testing
