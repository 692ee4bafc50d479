// The folder of a run: only one process trains in it; damaged checkpoints, the best checkpoint, the machines that
// computed a run; and the record of its model, so that a configuration changed by hand is not mistaken for the trained
// one.
#include <gtest/gtest.h>
#include <sys/file.h>

#include <array>

#include "core/cpu/parallel.hpp"
#include "core/io/file_descriptor.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/train.hpp"
#include "tests/error_of.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::run_folder_test {

namespace fs = std::filesystem;

// The lock that a training process holds.
FileDescriptor lock_of(const std::string& folder) {
  FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(::flock(file.number(), LOCK_EX | LOCK_NB), 0) << folder;
  return file;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class Lock : public Program {};

TEST_F(Lock, ForceDoesNotMoveARunAtWork) {
  const pid_t process = start(tiny("run", "none", "--steps=1000000 --save-every=1000000"), "first");
  EXPECT_TRUE(comes_true([&] { return lines_of(folder_ / "run/metrics.jsonl") >= 3; }));
  const std::string config = file("run/config.json");
  refused(tiny("run", "rope", "--force"), "another process is training in 'run'", 1);
  EXPECT_FALSE(exists("run.old"));
  EXPECT_EQ(file("run/config.json"), config);
  send_signal(process, SIGKILL);
  finish(process, "first");
  done(tiny("run", "rope", "--force"));
  EXPECT_EQ(file("run.old/config.json"), config);
}

TEST_F(Lock, ForceDoesNotMoveASweepWithARunAtWork) {
  done(tiny("sweep/cope-seed1", "cope"));
  {
    const FileDescriptor lock = lock_of(folder_ / "sweep/cope-seed1");
    refused(tiny("sweep", "none", "--force"), "another process is training in 'sweep/cope-seed1'", 1);
    EXPECT_EQ(names_in(folder_.path().string()), (std::vector<std::string>{"program.err", "program.out", "sweep"}));
  }
  done(tiny("sweep", "none", "--force"));
}

// Before its configuration is written.
TEST_F(Lock, ANewRunTakesItFirst) {
  std::filesystem::create_directory(folder_ / "run");
  const FileDescriptor lock = lock_of(folder_ / "run");
  refused(tiny("run", "none"), "another process is training", 1);
  EXPECT_TRUE(names_in(folder_ / "run").empty());
}

TEST_F(Lock, OfRunsStartedTogetherOneGoesOn) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string run = formatted("run{}", attempt);
    std::vector<pid_t> processes;
    const auto name = [](std::size_t seed) { return formatted("\"seed\": {}", seed); };
    for (std::size_t seed = 1; seed <= 4; ++seed) {
      processes.push_back(start(tiny(run, "none", formatted("--steps=30 --seed={}", seed)), name(seed)));
    }
    int trained = 0;
    for (std::size_t seed = 1; seed <= 4; ++seed) {
      const Finished result = finish(processes[seed - 1], name(seed));
      if (result.code != 0) {
        EXPECT_EQ(result.code, 1);
        EXPECT_TRUE(holds(result.err, "another process") || holds(result.err, "holds a run already")) << result.err;
        continue;
      }
      ++trained;
      for (const std::string of : {"/config.json", "/results.json"}) expect_parts(file(run + of), {name(seed)});
    }
    EXPECT_EQ(trained, 1);
  }
}

class Damage : public Program {
 protected:
  void SetUp() override {
    done(tiny("reference", "cope", "--steps=24 --save-every=3"));
    ASSERT_EQ(names_of_checkpoints(reference_).back(), "step-00000024.safetensors");
  }

  // A copy of the run with truncated checkpoints.
  void damage(const std::vector<std::string>& names) {
    fs::remove_all(run_);
    fs::copy(reference_, run_, fs::copy_options::recursive);
    for (const std::string& name : names) fs::resize_file(run_ + "/checkpoints/" + name, 3000);
  }
  std::string resume() { return done("resume run --quiet --threads=1"); }

  std::string reference_ = folder_ / "reference", run_ = folder_ / "run";
};

// results.json is not sufficient for a run to count as finished.
TEST_F(Damage, AFinishedRunGoesOnFromItsNewestGoodCheckpoint) {
  const std::string last = "step-00000024.safetensors";
  damage({last});
  const std::string cut = file("run/checkpoints/" + last), metrics = file("run/metrics.jsonl");
  expect_parts(resume(), {"passed over", last, "what was passed over is now in run/checkpoints.old\n"});
  expect_same_run(run_, reference_);
  EXPECT_EQ(results_of(run_), results_of(reference_));
  EXPECT_TRUE(file("run/checkpoints.old/" + last) == cut);
  EXPECT_EQ(file("run/checkpoints.old/metrics.jsonl"), metrics);
  EXPECT_TRUE(exists("run/checkpoints.old/results.json"));
  expect_parts(resume(), {"nothing to do"});
  // Checkpoints that were removed on purpose are not computed again.
  fs::remove_all(run_ + "/checkpoints");
  expect_parts(resume(), {"nothing to do"});
}

// The checkpoints are damaged, or unreadable like the files of another user.
TEST_F(Damage, ARunWithCheckpointsNeverBeginsAgainByItself) {
  for (const bool finished : {true, false}) {
    damage({});
    if (!finished) fs::remove(run_ + "/results.json");
    for (const std::string& name : names_of_checkpoints(run_)) {
      const std::string path = run_ + "/checkpoints/" + name;
      fs::resize_file(path, 3000);
      if (finished) continue;
      fs::remove(path);
      fs::create_symlink(name, path);  // to itself
    }
    const auto files = checkpoints_of(run_);
    const std::string metrics = file("run/metrics.jsonl");
    refused("resume run --quiet --steps=30",
            "' has 2 checkpoints, the newest of step 24, and none that was trained can be read; "
            "bring them back (owner, rights), or begin again at step 0: 'tally resume --restart'",
            1);
    EXPECT_TRUE(checkpoints_of(run_) == files);
    EXPECT_EQ(file("run/metrics.jsonl"), metrics);
    EXPECT_EQ(exists("run/results.json"), finished);
    expect_parts(done("resume run --restart --threads=1"), {"what was trained is now in run/checkpoints.old\n"});
    expect_same_run(run_, reference_);
    for (const auto& [name, bytes] : files) {
      EXPECT_TRUE(fs::exists(fs::symlink_status(run_ + "/checkpoints.old/" + name))) << name;
    }
    EXPECT_EQ(file("run/checkpoints.old/metrics.jsonl"), metrics);
  }
}

TEST_F(Damage, ARunWhoseCheckpointsAreGoneDoesNotBeginAgainByItself) {
  const auto gone = [&](const std::string& message) {
    refused("resume run --steps=30 --quiet", message + ", and its checkpoints are gone; bring them back", 1);
  };
  damage({});
  fs::remove_all(run_ + "/checkpoints");
  const std::string results = file("run/results.json");
  gone("was trained to step 24 before");
  EXPECT_EQ(file("run/results.json"), results);
  fs::remove(run_ + "/results.json");
  gone("was trained to step 24 before");
  write_file(run_ + "/results.json", results);
  fs::remove(run_ + "/metrics.jsonl");
  gone("was trained before");
}

// Checkpoint rotation opens a checkpoint before it removes it.
TEST_F(Damage, ACheckpointThatCannotBeReadIsNotRemoved) {
  damage({});
  const std::string name = "/step-00000001.safetensors";
  write_file(run_ + "/checkpoints" + name, "of another program");
  expect_parts(done("resume run --steps=30 --quiet"), {"not removed: ", name});
  EXPECT_FALSE(exists("run/checkpoints" + name));
  EXPECT_EQ(file("run/checkpoints.old" + name), "of another program");
}

TEST_F(Damage, AFinishedRunStaysAsItIsWhereItsLastCheckpointIsSound) {
  const std::string stray = run_ + "/checkpoints/step-00000099.safetensors";
  const std::string nothing = "the run is finished; nothing to do\n";
  damage({});
  write_file(stray, "damaged");
  EXPECT_EQ(resume(), nothing);
  fs::remove(stray);
  std::string config = file("run/config.json");  // edited by hand
  config.replace(config.find("\"steps\": 24"), 11, "\"steps\": 30");
  write_file(run_ + "/config.json", config);
  EXPECT_EQ(resume(), "not applied: steps 24 -> 30\n" + nothing);
  EXPECT_TRUE(checkpoints_of(run_) == checkpoints_of(reference_));
}

// Damaged checkpoints that were ahead do not count among the last two, which are kept.
TEST_F(Damage, WhatIsTrainedAgainIsKept) {
  struct KilledAtStep10 final : TrainObserver {
    void stepped(const StepReport& report) override { check(report.step < 10, "test", "killed"); }
  } observer;
  damage(names_of_checkpoints(reference_));
  {
    const std::atomic<bool> never = false;
    RunFolder folder = RunFolder::open_to_train(run_);
    EXPECT_EQ(folder.restart(), run_ + "/checkpoints.old");
    EXPECT_THROW(train(folder, observer, never), Error);
  }
  EXPECT_FALSE(exists("run/results.json"));
  // No evaluation makes it the best.
  EXPECT_EQ(RunFolder::open(run_).newest_checkpoint([](const std::string&) {}).step, 9);
  resume();
  expect_same_run(run_, reference_);
}

class BestCheckpoint : public Program {};
class Starts : public Program {};

// A model that does not learn has equal evaluations. The best is the first of them, and it is kept.
TEST_F(BestCheckpoint, IsTheEarlierOfEquals) {
  done(tiny("run", "none", "--steps=12 --optimiser.lr=0"));
  expect_parts(results_of(folder_ / "run"), {"\"best_step\": 2,"});
  EXPECT_EQ(checkpoints_of(folder_ / "run").size(), 3U);
  EXPECT_EQ(names_of_checkpoints(folder_ / "run").front(), "step-00000002.safetensors");
}

TEST_F(Starts, EachIsRecordedWithItsMachine) {
  done(tiny("run", "none"));
  done("resume run --steps=6 --threads=3");
  done("resume run");  // which has no work left
  done("resume run --steps=8 --device=cuda-host --precision=tf32");
  const std::vector<StartRecord> starts = all_of<StartRecord>(read_metrics(folder_ / "run/metrics.jsonl"));
  ASSERT_EQ(starts.size(), 3U);
  const std::string report = done("report run");
  for (std::size_t n = 0; n < 3; ++n) {
    const Machine& machine = starts[n].machine;
    EXPECT_EQ(starts[n].step, n == 0 ? 0 : n == 1 ? 4 : 6);
    EXPECT_EQ(machine.device + " " + machine.precision, n == 2 ? "cuda-host tf32" : "cpu f32");
    EXPECT_EQ(machine.processor, processor_text());
    EXPECT_EQ(machine.version, TALLY_VERSION);
    EXPECT_EQ(machine.commit, commit);
    EXPECT_FALSE(machine.blas.empty() || machine.compiler.empty());
    expect_parts(report, {machine.text()});
  }
  EXPECT_EQ(starts[1].machine.threads, 3);
}

class ModelRecords : public Program {
 protected:
  // Trains a run and makes it an unfinished one.
  void train(const std::string& encoding) {
    std::filesystem::remove_all(run_);
    done(tiny("run", encoding));
    std::filesystem::remove(run_ + "/results.json");
    std::filesystem::remove(run_ + "/checkpoints/step-00000004.safetensors");
    config_ = file("run/config.json");
  }
  void edit(const std::string& from, const std::string& to) {
    std::string text = config_;
    ASSERT_TRUE(holds(text, from)) << from << "\n" << text;
    text.replace(text.find(from), from.size(), to);
    if (from.starts_with("\"pe\"")) {  // its options differ then too
      const std::size_t begin = text.find("\"pe-options\""), end = text.find("\"model\"");
      text.erase(begin, end - begin);
    }
    write_file(run_ + "/config.json", text);
  }

  const std::string run_ = folder_ / "run";
  std::string config_;
};

// None of these changes affects the shapes of parameters.
TEST_F(ModelRecords, AnotherModelIsRefusedWithBothValues) {
  train("rope");
  const auto before = checkpoints_of(run_);
  for (const auto& [from, to, names] : std::vector<std::array<std::string, 3>>{
           {"\"heads\": 2", "\"heads\": 4", "model.heads 2, the configuration has 4"},
           {"\"base\": 10000", "\"base\": 500", "pe.rope.base 10000, the configuration has 500"},
           {"\"norm-place\": \"pre\"", "\"norm-place\": \"post\"", "model.norm-place pre, the configuration has post"},
           {"\"pe\": \"rope\"", "\"pe\": \"alibi\"", "pe rope, the configuration has alibi"}}) {
    edit(from, to);
    for (const std::string line : {"eval run", "resume run", "convert run weights"}) {
      refused({{line, "made with " + names}, {line, "checkpoints/step-00000002.safetensors"}}, 1);
    }
    EXPECT_TRUE(checkpoints_of(run_) == before);
  }
  write_file(run_ + "/config.json", config_);
  done("eval run");
}

// Settings used only in training and evaluation are excluded. Otherwise resumed runs would end with other bytes.
TEST(ModelRecord, HoldsWhatTheFunctionNeeds) {
  RunConfig config = RunConfig::make("flip-flop", "cope", "quick");
  const ModelRecord record = model_record(config, *config.make_task());
  EXPECT_EQ(record.at("vocabulary"), "w r i 0 1");
  EXPECT_EQ(record.at("pe.cope.p-max"), "64");
  EXPECT_EQ(model_record_from_text(model_record_text(record), "text"), record);
  const std::string counted = "300 tokens", one = "300 tokens, 1a2b3c4d", other = "300 tokens, 5e6f7a8b";
  EXPECT_TRUE(same_vocabulary(one, one));
  EXPECT_FALSE(same_vocabulary(one, other));
  EXPECT_TRUE(same_vocabulary(counted, one)) << "of token files the number of ids is known";
  EXPECT_FALSE(same_vocabulary("301 tokens", one));
  EXPECT_FALSE(same_vocabulary("w r i 0 1", "w r i 0"));
  ModelRecord earlier = record;
  earlier["vocabulary"] = one;
  EXPECT_TRUE(holds(error_of([&] { check_same_model(earlier, config, *config.make_task()); }),
                    "made with 300 tokens of the tokenizer with the checksum 1a2b3c4d, and the configuration has the "
                    "symbols w r i 0 1"));
  for (const auto& [setting, value] : {std::pair{"steps", "1"},
                                       {"seed", "5"},
                                       {"optimiser.lr", "1"},
                                       {"model.dropout", "0.5"},
                                       {"model.init", "gpt2"},
                                       {"task.sparse-count", "1"}}) {
    config.set(setting, value);
    EXPECT_EQ(model_record(config, *config.make_task()), record) << setting;
  }
  const RunConfig counting = RunConfig::make("counting", "cope", "quick");
  EXPECT_TRUE(holds(error_of([&] { check_same_model(record, counting, *counting.make_task()); }),
                    "made with task flip-flop, the configuration has counting"));
}

}  // namespace tally::testing::run_folder_test
