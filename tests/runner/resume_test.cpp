// Guarantees for a run that is killed, stopped or loses files, and is then resumed, also with other settings.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tasks/runs/metrics.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::resume_test {

class Resume : public Program {
 protected:
  // The undisturbed run.
  void SetUp() override { done(training("reference")); }

  // Sixty steps with a metrics line at each one, which shows the progress of the run.
  static std::string training(const std::string& run, const std::string& options = "",
                              const std::string& encoding = "cope") {
    std::string all = options;
    for (const std::string setting : {"--steps=60", "--eval-every=10", "--save-every=5"}) {
      if (!holds(options, setting.substr(0, setting.find('=')))) all += " " + setting;
    }
    return tiny(run, encoding, all);
  }
  static std::string resuming(const std::string& options = "", const std::string& run = "run") {
    return "resume " + run + " --quiet --threads=1 " + options;
  }
  void expect_as_reference() { expect_same_run(run_, reference_); }
  bool wait_for_lines(std::size_t count) {
    return comes_true([&] { return lines_of(run_ + "/metrics.jsonl") >= count; });
  }

  // Starts the run with these words, kills it five times and lets it finish.
  void train_with_five_kills(const std::string& line) {
    std::mt19937 random(20240501);
    int killed = 0;
    std::size_t lines = 1;
    for (int attempt = 0; attempt < 5; ++attempt) {
      lines += 2 + random() % 12;
      const pid_t process = start(attempt == 0 ? line : resuming());
      EXPECT_TRUE(wait_for_lines(lines)) << "attempt " << attempt;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      send_signal(process, SIGKILL);
      killed += finish(process).code == 128 + SIGKILL;
    }
    EXPECT_GE(killed, 4);
    done(resuming());
  }

  // Starts the run and sends the signal once it has written this number of lines. On a busy machine the run may have
  // finished first, so it retries a few times.
  void train_until(std::size_t lines, int signal, int code, const std::string& more = "") {
    for (int attempt = 1;; ++attempt) {
      std::filesystem::remove_all(run_);
      const pid_t process = start(training("run", more));
      EXPECT_TRUE(wait_for_lines(lines));
      send_signal(process, signal);
      const Finished result = finish(process);
      if (attempt < 5 && exists("run/results.json")) continue;
      EXPECT_EQ(result.code, code) << result.err;
      return;
    }
  }
  void train_until_killed(std::size_t lines, const std::string& more = "") {
    train_until(lines, SIGKILL, 128 + SIGKILL, more);
  }

  std::string reference_ = folder_ / "reference", run_ = folder_ / "run";
};

TEST_F(Resume, AfterFiveKillsTheRunIsTheSame) {
  train_with_five_kills(training("run"));
  expect_as_reference();
  // Covers masks that depend on the step, a token shift, sums along the text, and parameters clamped after each update.
  const std::string dropout = "--model.dropout=0.1 --micro-batch=3";
  done(training("reference", dropout + " --force", "kerple+fox-pro"));
  std::filesystem::remove_all(run_);
  train_with_five_kills(training("run", dropout, "kerple+fox-pro"));
  expect_as_reference();
}

TEST_F(Resume, KilledBeforeItsFirstCheckpointItBeginsAnew) {
  train_until_killed(4, "--save-every=60 --eval-every=60");
  EXPECT_TRUE(checkpoints_of(run_).empty());
  done(resuming("--save-every=5 --eval-every=10"));
  expect_as_reference();
}

TEST_F(Resume, WithAnotherNumberOfThreadsTheBytesAreTheSame) {
  train_until_killed(30);
  done("resume run --threads=3");
  expect_as_reference();
}

TEST_F(Resume, SignalsSaveTheStepAtWork) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    train_until(12, signal, code, "--save-every=50");
    ASSERT_EQ(checkpoints_of(run_).size(), 1U);
    EXPECT_FALSE(exists("run/results.json"));
    done(resuming("--save-every=5"));
    expect_as_reference();
  }
}

// The checkpoint written after the signal must not displace the last regular checkpoint.
TEST_F(Resume, AStopNearTheEndKeepsTheSameCheckpoints) {
  train_until(76, SIGINT, 130);  // 60 lines of training, 18 of evaluations, 2 at the start
  done(resuming());
  expect_as_reference();
}

TEST_F(Resume, AStopInTheMiddleOfAnEvaluationIsTakenAtOnce) {
  // Step 10 and the first split; the second one takes hours.
  train_until(13, SIGINT, 130, "--save-every=60 --task.sparse-count=100000000");
  EXPECT_EQ(names_of_checkpoints(run_), std::vector<std::string>{"step-00000010.safetensors"});
  done(resuming("--save-every=5 --task.sparse-count=5"));
  expect_as_reference();
}

TEST_F(Resume, ASecondSignalStopsAtOnce) {
  const pid_t process = start(training("run", "--steps=1000000 --save-every=1000000 --eval-every=0"));
  EXPECT_TRUE(wait_for_lines(3));
  // Stopped, so that both signals are pending before the current step ends.
  for (const int signal : {SIGSTOP, SIGINT, SIGTERM, SIGCONT}) send_signal(process, signal);
  const int code = finish(process).code;
  EXPECT_TRUE(code == 130 || code == 143) << code;
  EXPECT_TRUE(checkpoints_of(run_).empty());  // a single signal would have left a checkpoint
}

// The effect of `tally train | head -1`.
TEST_F(Resume, AReaderThatLeavesDoesNotStopTheTraining) {
  const Finished result = shell("{ '" TALLY_RUNNER "' " + loud(training("run")) + "; echo $? > code; } | head -1");
  EXPECT_EQ(lines_of(folder_ / "program.out"), 1U) << result.out;
  EXPECT_EQ(file("code"), "1\n");
  expect_parts(result.err, {"cannot write to the standard output"});
  expect_as_reference();
}

TEST_F(Resume, IsRefusedWhileTheRunIsAtWork) {
  const pid_t process = start(training("run", "--steps=1000000 --save-every=1000000"), "first");
  EXPECT_TRUE(wait_for_lines(3));
  for (const char* change : {"--seed=1", "--optimiser.clip=2"}) {
    refused(resuming(change), "another process is training", 1);
  }
  EXPECT_FALSE(holds(file("run/config.json"), "\"clip\": 2.0"));
  send_signal(process, SIGKILL);
  finish(process, "first");
}

TEST_F(Resume, ACorruptedNewestCheckpointIsPassedOverByName) {
  train_until_killed(35);
  const std::string newest = names_of_checkpoints(run_).back();
  damage(run_ + "/checkpoints/" + newest);
  expect_parts(done(resuming()), {"passed over", newest});
  expect_as_reference();
}

// The name of a checkpoint is no proof of the run's progress.
TEST_F(Resume, ADamagedCheckpointDoesNotSayHowFarTheRunIs) {
  done(training("run"));
  write_file(run_ + "/checkpoints/step-00000060.safetensors", "damaged");
  std::filesystem::remove(run_ + "/results.json");
  refused(resuming("--steps=54"), "the run is at step 55 already, beyond 54");
  expect_parts(done(resuming("--steps=58")), {"passed over", "step-00000060"});
  // It does not count as one of the last two.
  EXPECT_TRUE(checkpoints_of(run_).contains("step-00000055.safetensors"));
  EXPECT_TRUE(checkpoints_of(run_).contains("step-00000058.safetensors"));
}

TEST_F(Resume, WhatIsInTheWayOfACheckpointIsNamedBeforeTheTraining) {
  done(training("run", "--steps=10 --eval-every=0"));
  const std::string metrics = file("run/metrics.jsonl"), config = file("run/config.json");
  std::filesystem::create_directory(run_ + "/checkpoints/step-00000020.safetensors");
  refused(resuming("--steps=20"), "step-00000020.safetensors: is in the way of a checkpoint", 1);
  EXPECT_EQ(file("run/metrics.jsonl"), metrics);
  EXPECT_EQ(file("run/config.json"), config);
  done(resuming("--steps=15"));  // which does not reach that step

  std::filesystem::remove_all(run_ + "/checkpoints");
  write_file(run_ + "/checkpoints", "");
  std::filesystem::remove(run_ + "/results.json");
  refused(resuming(), "run/checkpoints'", 1);
}

TEST_F(Resume, ACutCheckpointAndACutLineOfMetricsAreNoHindrance) {
  train_until_killed(35);
  const std::string newest = run_ + "/checkpoints/" + names_of_checkpoints(run_).back();
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  write_file(run_ + "/metrics.jsonl", file("run/metrics.jsonl") + R"({"step":99,"spl)");
  done(resuming());
  expect_as_reference();
}

TEST_F(Resume, AFinishedRunStaysAsItIs) {
  const auto files = [this] {
    std::map<std::string, std::string> all = checkpoints_of(reference_);
    for (const char* name : {"config.json", "metrics.jsonl", "results.json"})
      all[name] = read_file(reference_ + "/" + name);
    return all;
  };
  const auto before = files();
  const std::string rate = to_text(RunFolder::open(reference_).config().optimiser.lr);
  for (const auto& [more, said] :
       std::vector<Refusal>{{"", ""},
                            {"--steps=60 --model.width=8", ""},
                            {"--steps=40", "not applied: steps 60 -> 40\n"},
                            {"--optimiser.lr=0.5", "not applied: optimiser.lr " + rate + " -> 0.5\n"}}) {
    EXPECT_EQ(done(resuming(more, "reference")), said + "the run is finished; nothing to do\n");
    EXPECT_TRUE(files() == before);
  }
}

// A wrong line in the middle of metrics, and a checkpoint of another model.
TEST_F(Resume, WhatFailsBeforeItBeginsLeavesTheRunAsItIs) {
  const std::string checkpoint = reference_ + "/checkpoints/step-00000060.safetensors";
  const std::string metrics = reference_ + "/metrics.jsonl";
  done(training("wide", "--model.width=16"));
  const std::string config = file("reference/config.json"), results = file("reference/results.json");
  for (const auto& [message, path, content] : std::vector<std::array<std::string, 3>>{
           {"metrics.jsonl, line 2", metrics, read_file(metrics).insert(0, "{}\n{\"step\":1e999}\n")},
           {"model.width 16, the configuration has 8", checkpoint,
            file("wide/checkpoints/step-00000060.safetensors")}}) {
    const std::string before = read_file(path);
    write_file(path, content);
    const Finished result = tally("resume reference --steps=80 --optimiser.lr=0.5");
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(holds(result.err, message)) << message << "\n" << result.err;
    EXPECT_FALSE(holds(result.out, "changed")) << result.out;
    EXPECT_EQ(file("reference/config.json"), config);
    EXPECT_EQ(file("reference/results.json"), results);
    EXPECT_TRUE(read_file(path) == content);
    write_file(path, before);
  }
}

TEST_F(Resume, DamagedResultsAreNotTakenForTheEnd) {
  const std::string path = reference_ + "/results.json";
  for (const char* content : {"{", "{}", "[]", R"({"best_step": 60, "evaluations": [{}]})"}) {
    write_file(path, content);
    for (const std::string& line : {resuming("", "reference"), std::string("eval reference --checkpoint=best")}) {
      refused(line, "reference/results.json", 1);
    }
    EXPECT_EQ(read_file(path), content);
  }
  std::filesystem::remove(path);  // so that they are written again
  done(resuming("", "reference"));
  EXPECT_TRUE(holds(read_file(path), "best_step"));
}

TEST_F(Resume, MoreStepsGoOnWithAFinishedRun) {
  done(training("run", "--steps=30"));
  expect_parts(done(resuming("--steps=60")), {"changed: steps 30 -> 60"});
  EXPECT_EQ(names_of_checkpoints(run_).back(), "step-00000060.safetensors");
  EXPECT_TRUE(holds(file("run/config.json"), "\"steps\": 60"));
  EXPECT_TRUE(holds(metrics_of(run_).front(), "\"steps\":60"));
}

TEST_F(Resume, RefusesAnotherModel) {
  train_until_killed(12);
  const std::string config = file("run/config.json");
  for (const char* change : {"--model.width=16", "--model.layers=1", "--pe.p-max=9", "--pe=rope", "--task=counting",
                             "--dtype=f64", "--optimiser.name=sgd", "--model.tied=true", "--steps=2"}) {
    refused(resuming(change), "[resume]");
  }
  EXPECT_EQ(tally(resuming("--model.widht=16")).code, 2);
  EXPECT_EQ(file("run/config.json"), config);
  done(resuming("--pe=cope --task=flip-flop --model.width=8"));
  expect_as_reference();
}

#ifndef TALLY_SANITIZED  // the limit kills sanitizers
TEST_F(Resume, AFullDiskKeepsTheOldCheckpoint) {
  // The learning rate does not depend on the number of steps; few lines in metrics.jsonl.
  const std::string constant_rate = "--log-every=100 --optimiser.schedule=constant";
  done(training("run", constant_rate + " --steps=5"));
  const auto before = checkpoints_of(run_);
  ASSERT_EQ(before.size(), 1U);
  // Files of at most 8 KiB: configuration and metrics fit, a checkpoint does not.
  const Finished full = shell("ulimit -f 16; exec '" TALLY_RUNNER "' resume run --quiet --steps=10");
  EXPECT_EQ(full.code, 1);
  expect_parts(full.err, {"step-00000010.safetensors", "File too large"});
  EXPECT_TRUE(checkpoints_of(run_) == before) << "the old checkpoint, and no temporary file";
  done(resuming());
  done(training("straight", constant_rate + " --steps=10"));
  EXPECT_TRUE(checkpoints_of(run_) == checkpoints_of(folder_ / "straight"));
}
#endif

class ResumeSettings : public Program {
 protected:
  // The model does not change, so the loss of a step identifies its sequences.
  void train(const std::string& run, const std::string& more) {
    done(tiny(run, "none", "--optimiser.lr=0 --eval-every=0 --save-every=0 " + more));
  }
  std::string resume(const std::string& run, const std::string& more) {
    return done("resume " + run + " --quiet --threads=1 " + more);
  }
  std::vector<double> losses(const std::string& run) {
    std::vector<double> all;
    for (const StepReport& report : all_of<StepReport>(read_metrics(folder_ / run + "/metrics.jsonl"))) {
      all.push_back(report.loss);
    }
    return all;
  }
  std::string sequences(int step) {
    return SafetensorsFile::open(folder_ / formatted("run/checkpoints/step-0000000{}.safetensors", step))
        .metadata()
        .at("sequences");
  }
};

TEST_F(ResumeSettings, WithAnotherBatchNoSequenceIsLeftOutOrTakenAgain) {
  train("run", "--steps=3");
  EXPECT_EQ(sequences(3), "12");
  expect_parts(resume("run", "--steps=5 --batch=2"), {"changed: batch 4 -> 2\n"});
  EXPECT_EQ(sequences(5), "16");
  resume("run", "--steps=7 --batch=4");
  EXPECT_EQ(sequences(7), "24");
  train("fours", "--steps=6");
  train("twos", "--steps=8 --batch=2");
  const std::vector<double> run = losses("run"), fours = losses("fours"), twos = losses("twos");
  ASSERT_EQ(run.size(), 7u);
  EXPECT_EQ(run, (std::vector{fours[0], fours[1], fours[2], twos[6], twos[7], fours[4], fours[5]}));
}

// A run resumed for more steps before its cooldown equals one planned with these steps.
TEST_F(ResumeSettings, StableStepsAreThoseOfALongerRun) {
  const std::string stable = "--optimiser.schedule=wsd --optimiser.cooldown=0.25 --optimiser.warmup=2";
  done(tiny("run", "rope", stable + " --steps=8"));
  done(tiny("straight", "rope", stable + " --steps=12"));
  std::filesystem::remove(folder_ / "run/checkpoints/step-00000008.safetensors");
  std::filesystem::remove(folder_ / "run/results.json");
  resume("run", "--steps=12");
  const std::string last = "/checkpoints/step-00000012.safetensors";
  EXPECT_TRUE(file("run" + last) == file("straight" + last));
  refused(tiny("new", "rope", "--optimiser.schedule=wsd --optimiser.cooldown=0.9 --optimiser.warmup=2 --steps=8"),
          "warmup 2 and a cooldown of 7 steps are longer than the run of 8 steps");
}

TEST_F(ResumeSettings, DropoutIsNoPartOfTheModelAndInitialValuesAre) {
  train("run", "--steps=3");
  expect_parts(resume("run", "--steps=4 --model.dropout=0.1"), {"changed: model.dropout 0 -> 0.1\n"});
  refused(
      {{"resume run --steps=5 --model.init=gpt2", "the run has its weights already, so this has no effect: model.init"},
       {"resume run --model.qk-norm=full --steps=8", "the model of a run cannot change: model.qk-norm none -> full"}});
}

}  // namespace tally::testing::resume_test
