// Guarantees for a run that is killed, stopped or loses files, and is then resumed.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace resume_test {

// Sixty steps with a metrics line at each one, which shows the progress of the run.
std::vector<std::string> training(const std::string& run, std::vector<std::string> options = {},
                                  const std::string& encoding = "cope") {
  for (const std::string setting : {"--steps=60", "--eval-every=10", "--save-every=5", "--log-every=1"}) {
    const std::string name = setting.substr(0, setting.find('=') + 1);
    const bool replaced =
        std::any_of(options.begin(), options.end(), [&](const auto& o) { return o.starts_with(name); });
    if (!replaced) options.push_back(setting);
  }
  return tiny_training(run, encoding, options);
}

std::vector<std::string> resuming(const std::string& run) { return {"resume", run, "--quiet", "--threads=1"}; }

pid_t start_tally(std::vector<std::string> arguments, const TemporaryFolder& folder) {
  arguments.insert(arguments.begin(), TALLY_RUNNER);
  return start_program(arguments, folder);
}

bool wait_for_lines(const std::string& run, std::size_t count) {
  return comes_true([&] { return lines_of(run + "/metrics.jsonl") >= count; });
}

// Starts a run with these words, kills it five times and lets it finish.
void train_with_five_kills(const std::vector<std::string>& words, const TemporaryFolder& folder) {
  const std::string& run = words[1];
  std::mt19937 random(20240501);
  int killed = 0;
  std::size_t lines = 1;
  for (int attempt = 0; attempt < 5; ++attempt) {
    lines += 2 + random() % 12;
    const pid_t process = start_tally(attempt == 0 ? words : resuming(run), folder);
    EXPECT_TRUE(wait_for_lines(run, lines)) << "attempt " << attempt;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    send_signal(process, SIGKILL);
    killed += finish_program(process, folder).code == 128 + SIGKILL;
  }
  EXPECT_GE(killed, 4);
  const Finished last = run_tally(resuming(run), folder);
  EXPECT_EQ(last.code, 0) << last.err;
}

class Resume : public ::testing::Test {
 protected:
  // The undisturbed run.
  void SetUp() override { ASSERT_EQ(run_tally(training(reference()), folder_).code, 0); }
  std::string reference() const { return folder_ / "reference"; }
  std::string run() const { return folder_ / "run"; }

  Finished resume(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = resuming(run());
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  }

  // Starts the run and sends the signals once it has written this number of lines. On a busy machine the run may have
  // finished first, so it retries a few times.
  Finished train_until(std::size_t lines, const std::vector<int>& signals, const std::vector<std::string>& more = {}) {
    for (int attempt = 1;; ++attempt) {
      const pid_t process = start_tally(training(run(), more), folder_);
      EXPECT_TRUE(wait_for_lines(run(), lines));
      for (const int signal : signals) send_signal(process, signal);
      Finished result = finish_program(process, folder_);
      if (attempt == 5 || !std::filesystem::exists(run() + "/results.json")) return result;
      std::filesystem::remove_all(run());
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Resume, AfterFiveKillsTheRunIsTheSame) {
  train_with_five_kills(training(run()), folder_);
  expect_same_run(run(), reference());
}

// Covers masks that depend on the step, a token shift, sums along the text, and parameters clamped after each update.
TEST(ResumeOfASum, AfterFiveKillsTheRunWithDropoutIsTheSame) {
  const TemporaryFolder folder;
  const std::vector<std::string> dropout{"--model.dropout=0.1", "--micro-batch=3"};
  const std::string reference = folder / "reference", run = folder / "run";
  ASSERT_EQ(run_tally(training(reference, dropout, "kerple+fox-pro"), folder).code, 0);
  train_with_five_kills(training(run, dropout, "kerple+fox-pro"), folder);
  expect_same_run(run, reference);
}

TEST_F(Resume, KilledBeforeItsFirstCheckpointItBeginsAnew) {
  EXPECT_EQ(train_until(4, {SIGKILL}, {"--save-every=60", "--eval-every=60"}).code, 128 + SIGKILL);
  EXPECT_TRUE(checkpoints_of(run()).empty());
  EXPECT_EQ(resume({"--save-every=5", "--eval-every=10"}).code, 0);
  expect_same_run(run(), reference());
}

TEST_F(Resume, WithAnotherNumberOfThreadsTheBytesAreTheSame) {
  EXPECT_EQ(train_until(30, {SIGKILL}).code, 128 + SIGKILL);
  EXPECT_EQ(run_tally({"resume", run(), "--threads=3"}, folder_).code, 0);
  expect_same_run(run(), reference());
}

TEST_F(Resume, SignalsSaveTheStepAtWork) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    std::filesystem::remove_all(run());
    const Finished stopped = train_until(12, {signal}, {"--save-every=50"});
    EXPECT_EQ(stopped.code, code) << stopped.err;
    ASSERT_EQ(checkpoints_of(run()).size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(run() + "/results.json"));
    EXPECT_EQ(resume({"--save-every=5"}).code, 0);
    expect_same_run(run(), reference());
  }
}

// The checkpoint written after the signal must not displace the last regular checkpoint.
TEST_F(Resume, AStopNearTheEndKeepsTheSameCheckpoints) {
  EXPECT_EQ(train_until(76, {SIGINT}).code, 130);  // 60 lines of training, 18 of evaluations, 2 at the start
  EXPECT_EQ(resume().code, 0);
  expect_same_run(run(), reference());
}

TEST_F(Resume, AStopInTheMiddleOfAnEvaluationIsTakenAtOnce) {
  const std::vector<std::string> long_evaluation{"--save-every=60", "--task.sparse-count=100000000"};
  const pid_t process = start_tally(training(run(), long_evaluation), folder_);
  EXPECT_TRUE(wait_for_lines(run(), 13));  // step 10 and the first split; the second one takes hours
  send_signal(process, SIGINT);
  EXPECT_EQ(finish_program(process, folder_).code, 130);
  EXPECT_EQ(names_of_checkpoints(run()), std::vector<std::string>{"step-00000010.safetensors"});
  EXPECT_EQ(resume({"--save-every=5", "--task.sparse-count=5"}).code, 0);
  expect_same_run(run(), reference());
}

TEST_F(Resume, ASecondSignalStopsAtOnce) {
  const pid_t process =
      start_tally(training(run(), {"--steps=1000000", "--save-every=1000000", "--eval-every=0"}), folder_);
  EXPECT_TRUE(wait_for_lines(run(), 3));
  send_signal(process, SIGSTOP);  // so that both signals are pending before the current step ends
  send_signal(process, SIGINT);
  send_signal(process, SIGTERM);
  send_signal(process, SIGCONT);
  const int code = finish_program(process, folder_).code;
  EXPECT_TRUE(code == 130 || code == 143) << code;
  EXPECT_TRUE(checkpoints_of(run()).empty());  // a single signal would have left a checkpoint
}

// The effect of `tally train | head -1`.
TEST_F(Resume, AReaderThatLeavesDoesNotStopTheTraining) {
  std::string command = "{ '" TALLY_RUNNER "'";
  for (const std::string& word : training(run(), {"--log-every=1"})) {
    if (word != "--quiet") command += " '" + word + "'";
  }
  command += "; echo $? > '" + (folder_ / "code") + "'; } | head -1";
  const Finished result = run_program({"/bin/sh", "-c", command}, folder_);
  EXPECT_EQ(lines_of(folder_ / "program.out"), 1U) << result.out;
  EXPECT_EQ(read_file(folder_ / "code"), "1\n");
  EXPECT_TRUE(holds(result.err, "cannot write to the standard output")) << result.err;
  expect_same_run(run(), reference());
}

TEST_F(Resume, IsRefusedWhileTheRunIsAtWork) {
  const pid_t process = start_tally(training(run(), {"--steps=1000000", "--save-every=1000000"}), folder_);
  EXPECT_TRUE(wait_for_lines(run(), 3));
  for (const char* change : {"--seed=1", "--optimiser.clip=2"}) {
    std::vector<std::string> words = resuming(run());
    words.insert(words.begin(), TALLY_RUNNER);
    words.emplace_back(change);
    const Finished second = finish_program(start_program(words, folder_, "second"), folder_, "second");
    EXPECT_EQ(second.code, 1);
    EXPECT_TRUE(holds(second.err, "another process is training")) << second.err;
  }
  EXPECT_FALSE(holds(read_file(run() + "/config.json"), "\"clip\": 2.0"));
  send_signal(process, SIGKILL);
  finish_program(process, folder_);
}

TEST_F(Resume, ACheckpointOfAnotherModelIsNamed) {
  EXPECT_EQ(train_until(12, {SIGKILL}).code, 128 + SIGKILL);
  ASSERT_EQ(run_tally(training(folder_ / "wide", {"--model.width=16", "--steps=5"}), folder_).code, 0);
  std::filesystem::copy_file(folder_ / "wide/checkpoints/step-00000005.safetensors",
                             run() + "/checkpoints/step-00000005.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  for (const std::string& name : names_of_checkpoints(run())) {
    if (name != "step-00000005.safetensors") std::filesystem::remove(run() + "/checkpoints/" + name);
  }
  const Finished result = resume();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.err, "step-00000005.safetensors") &&
              holds(result.err, "model.width 16, the configuration has 8"))
      << result.err;
}

TEST_F(Resume, ACorruptedNewestCheckpointIsPassedOverByName) {
  EXPECT_EQ(train_until(35, {SIGKILL}).code, 128 + SIGKILL);
  const std::vector<std::string> names = names_of_checkpoints(run());
  ASSERT_GE(names.size(), 2U);
  const std::string newest = run() + "/checkpoints/" + names.back();
  std::string bytes = read_file(newest);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);  // a number in the last tensor
  write_file(newest, bytes);
  const Finished result = resume();
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(holds(result.out, "passed over") && holds(result.out, names.back())) << result.out;
  expect_same_run(run(), reference());
}

// The name of a checkpoint is no proof of the run's progress.
TEST_F(Resume, ADamagedCheckpointDoesNotSayHowFarTheRunIs) {
  ASSERT_EQ(run_tally(training(run()), folder_).code, 0);
  write_file(run() + "/checkpoints/step-00000060.safetensors", "damaged");
  std::filesystem::remove(run() + "/results.json");
  const Finished refused = resume({"--steps=54"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(holds(refused.err, "the run is at step 55 already, beyond 54")) << refused.err;
  const Finished result = resume({"--steps=58"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "passed over") && holds(result.out, "step-00000060")) << result.out;
  // It does not count as one of the last two.
  EXPECT_TRUE(checkpoints_of(run()).contains("step-00000055.safetensors"));
  EXPECT_TRUE(checkpoints_of(run()).contains("step-00000058.safetensors"));
}

TEST_F(Resume, WhatIsInTheWayOfACheckpointIsNamedBeforeTheTraining) {
  ASSERT_EQ(run_tally(training(run(), {"--steps=10", "--eval-every=0"}), folder_).code, 0);
  const std::string metrics = read_file(run() + "/metrics.jsonl"), config = read_file(run() + "/config.json");
  const std::string in_the_way = run() + "/checkpoints/step-00000020.safetensors";
  std::filesystem::create_directory(in_the_way);
  const Finished result = resume({"--steps=20"});
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.err, in_the_way + ": is in the way of a checkpoint")) << result.err;
  EXPECT_EQ(read_file(run() + "/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(run() + "/config.json"), config);
  EXPECT_EQ(resume({"--steps=15"}).code, 0);  // which does not reach that step

  std::filesystem::remove_all(run() + "/checkpoints");
  write_file(run() + "/checkpoints", "");
  std::filesystem::remove(run() + "/results.json");
  const Finished no_folder = resume();
  EXPECT_EQ(no_folder.code, 1);
  EXPECT_TRUE(holds(no_folder.err, run() + "/checkpoints'")) << no_folder.err;
}

TEST_F(Resume, ACutCheckpointAndACutLineOfMetricsAreNoHindrance) {
  EXPECT_EQ(train_until(35, {SIGKILL}).code, 128 + SIGKILL);
  const std::string newest = run() + "/checkpoints/" + names_of_checkpoints(run()).back();
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  write_file(run() + "/metrics.jsonl", read_file(run() + "/metrics.jsonl") + R"({"step":99,"spl)");
  EXPECT_EQ(resume().code, 0);
  expect_same_run(run(), reference());
}

TEST_F(Resume, AWrongLineInTheMiddleOfMetricsIsNamed) {
  EXPECT_EQ(train_until(35, {SIGKILL}).code, 128 + SIGKILL);
  std::string text = read_file(run() + "/metrics.jsonl");
  text.insert(text.find('\n') + 1, "{\"step\":1e999}\n");
  write_file(run() + "/metrics.jsonl", text);
  const Finished result = resume();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(holds(result.err, "metrics.jsonl, line 2")) << result.err;
}

TEST_F(Resume, AFinishedRunStaysAsItIs) {
  const auto files = [this] {
    std::map<std::string, std::string> all = checkpoints_of(reference());
    for (const char* name : {"config.json", "metrics.jsonl", "results.json"})
      all[name] = read_file(reference() + "/" + name);
    return all;
  };
  const auto before = files();
  const std::string rate = to_text(RunFolder::open(reference()).config().optimiser.lr);
  const std::vector<std::pair<std::vector<std::string>, std::string>> resumes{
      {{}, ""},
      {{"--steps=60", "--model.width=8"}, ""},
      {{"--steps=40"}, "not applied: steps 60 -> 40\n"},
      {{"--optimiser.lr=0.5"}, "not applied: optimiser.lr " + rate + " -> 0.5\n"}};
  for (const auto& [more, said] : resumes) {
    std::vector<std::string> words = resuming(reference());
    words.insert(words.end(), more.begin(), more.end());
    const Finished result = run_tally(words, folder_);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, said + "the run is finished; nothing to do\n");
    EXPECT_TRUE(files() == before);
  }
}

TEST_F(Resume, WhatFailsBeforeItBeginsLeavesTheRunAsItIs) {
  const std::string checkpoint = reference() + "/checkpoints/step-00000060.safetensors";
  const std::string metrics = reference() + "/metrics.jsonl";
  const std::vector<std::pair<std::string, std::function<void()>>> hindrances{
      {"metrics.jsonl, line 2", [&] { write_file(metrics, read_file(metrics).insert(0, "{}\n[]\n")); }},
      {"step-00000060.safetensors", [&] {
         ASSERT_EQ(run_tally(training(folder_ / "wide", {"--model.width=16"}), folder_).code, 0);
         write_file(checkpoint, read_file(folder_ / "wide/checkpoints/step-00000060.safetensors"));
       }}};
  const std::string config = read_file(reference() + "/config.json");
  const std::string results = read_file(reference() + "/results.json");
  for (const auto& [message, hinder] : hindrances) {
    const std::string checkpoint_before = read_file(checkpoint), metrics_before = read_file(metrics);
    hinder();
    const std::string hindered = read_file(metrics);
    const Finished result = run_tally({"resume", reference(), "--steps=80", "--optimiser.lr=0.5"}, folder_);
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(holds(result.err, message)) << message << "\n" << result.err;
    EXPECT_FALSE(holds(result.out, "changed")) << result.out;
    EXPECT_EQ(read_file(reference() + "/config.json"), config);
    EXPECT_EQ(read_file(reference() + "/results.json"), results);
    EXPECT_EQ(read_file(metrics), hindered);
    write_file(checkpoint, checkpoint_before);
    write_file(metrics, metrics_before);
  }
}

TEST_F(Resume, DamagedResultsAreNotTakenForTheEnd) {
  const std::string path = reference() + "/results.json";
  for (const char* content : {"{", "{}", "[]", R"({"best_step": 60, "evaluations": [{}]})"}) {
    write_file(path, content);
    for (const std::vector<std::string>& words : {resuming(reference()), {"eval", reference(), "--checkpoint=best"}}) {
      const Finished result = run_tally(words, folder_);
      EXPECT_EQ(result.code, 1) << words[0] << content;
      EXPECT_TRUE(holds(result.err, path)) << words[0] << content << "\n" << result.err;
    }
    EXPECT_EQ(read_file(path), content);
  }
  std::filesystem::remove(path);  // so that they are written again
  EXPECT_EQ(run_tally(resuming(reference()), folder_).code, 0);
  EXPECT_TRUE(holds(read_file(path), "best_step"));
}

TEST_F(Resume, MoreStepsGoOnWithAFinishedRun) {
  ASSERT_EQ(run_tally(training(run(), {"--steps=30"}), folder_).code, 0);
  const Finished result = resume({"--steps=60"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "changed: steps 30 -> 60")) << result.out;
  EXPECT_EQ(checkpoints_of(run()).rbegin()->first, "step-00000060.safetensors");
  EXPECT_TRUE(holds(read_file(run() + "/config.json"), "\"steps\": 60"));
  EXPECT_TRUE(holds(metrics_of(run()).front(), "\"steps\":60"));
}

TEST_F(Resume, RefusesAnotherModel) {
  EXPECT_EQ(train_until(12, {SIGKILL}).code, 128 + SIGKILL);
  const std::string config = read_file(run() + "/config.json");
  for (const char* change : {"--model.width=16", "--model.layers=1", "--pe.p-max=9", "--pe=rope", "--task=counting",
                             "--dtype=f64", "--optimiser.name=sgd", "--model.tied=true", "--steps=2"}) {
    const Finished result = resume({change});
    EXPECT_EQ(result.code, 2) << change;
    EXPECT_TRUE(holds(result.err, "[resume]")) << result.err;
  }
  EXPECT_EQ(resume({"--model.widht=16"}).code, 2);
  EXPECT_EQ(read_file(run() + "/config.json"), config);
  EXPECT_EQ(resume({"--pe=cope", "--task=flip-flop", "--model.width=8"}).code, 0);
  expect_same_run(run(), reference());
}

#ifndef TALLY_SANITIZED  // the limit kills sanitizers
TEST_F(Resume, AFullDiskKeepsTheOldCheckpoint) {
  // The learning rate does not depend on the number of steps; few lines in metrics.jsonl.
  const auto constant_rate = [](const std::string& path, const std::string& steps) {
    return training(path, {steps, "--log-every=100", "--optimiser.schedule=constant"});
  };
  ASSERT_EQ(run_tally(constant_rate(run(), "--steps=5"), folder_).code, 0);
  const auto before = checkpoints_of(run());
  ASSERT_EQ(before.size(), 1U);
  // Files of at most 8 KiB: configuration and metrics fit, a checkpoint does not.
  const std::string command = "ulimit -f 16; exec '" TALLY_RUNNER "' resume '" + run() + "' --quiet --steps=10";
  const Finished full = run_program({"/bin/sh", "-c", command}, folder_);
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(holds(full.err, "step-00000010.safetensors") && holds(full.err, "File too large")) << full.err;
  EXPECT_TRUE(checkpoints_of(run()) == before) << "the old checkpoint, and no temporary file";
  EXPECT_EQ(resume().code, 0);

  const std::string straight = folder_ / "straight";
  ASSERT_EQ(run_tally(constant_rate(straight, "--steps=10"), folder_).code, 0);
  EXPECT_TRUE(checkpoints_of(run()) == checkpoints_of(straight));
}
#endif

}  // namespace resume_test
}  // namespace tally::testing
