// A run that is stopped and resumed: the times in its files, and the order in which they reach the disk.
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "core/io/json.hpp"
#include "tasks/runs/metrics.hpp"
#include "tasks/runs/train.hpp"
#include "tests/core/io_files.hpp"
#include "tests/tasks/configured.hpp"

namespace {

std::vector<std::string>* calls = nullptr;  // null: calls are not recorded

std::string name_of(int file) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).filename().string();
}

}  // namespace

// Replaces the C library's function in this program.
extern "C" int fdatasync(int file) {
  if (calls != nullptr) calls->push_back(name_of(file));
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}
extern "C" int fsync(int file) {
  if (calls != nullptr) calls->push_back(name_of(file));
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace tally::train_again_test {

RunConfig tiny() {
  return testing::with(
      RunConfig::make("flip-flop", "none"),
      "task.length=8 task.eval-count=2 task.sparse-count=2 task.dense-count=2 model.layers=1 model.width=8 "
      "model.heads=2 batch=2 steps=40 log-every=1 optimiser.warmup=0 save-every=10 eval-every=40");
}

// Requests a stop at a step.
class StopsAt final : public TrainObserver {
 public:
  StopsAt(std::int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void stepped(const StepReport& report) override { stop_ = stop_ || report.step == step_; }

 private:
  std::int64_t step_;
  std::atomic<bool>& stop_;
};

TEST(TrainAgain, TheTimeOfTrainingGoesOn) {
  const TemporaryFolder parent;
  const std::string path = parent.file("run");
  std::atomic<bool> stop = false;
  StopsAt observer(30, stop);
  {
    RunFolder folder = RunFolder::create(path, tiny(), false);
    EXPECT_EQ(train(folder, observer, stop), TrainOutcome::interrupted);
  }
  stop = false;
  RunFolder folder = RunFolder::open(path);
  EXPECT_EQ(train(folder, observer, stop), TrainOutcome::done);
  std::vector<double> seconds;
  for (const StepReport& report : all_of<StepReport>(read_metrics(folder.metrics_path()))) {
    seconds.push_back(report.seconds);
  }
  ASSERT_EQ(seconds.size(), 40u);
  EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end()));
  EXPECT_EQ(folder.read_results().real("seconds"), seconds.back());
}

// Without the metrics up to a checkpoint, a run resumed from it would have incomplete metrics.
TEST(TrainAgain, MetricsReachTheDiskBeforeTheCheckpoint) {
  const TemporaryFolder parent;
  RunFolder folder = RunFolder::create(parent.file("run"), tiny(), false);
  TrainObserver nobody;
  const std::atomic<bool> never = false;
  std::vector<std::string> noted;
  calls = &noted;
  train(folder, nobody, never);
  calls = nullptr;
  int checkpoints = 0;
  for (std::size_t n = 0; n < noted.size(); ++n) {
    if (!noted[n].starts_with("step-")) continue;
    ++checkpoints;
    ASSERT_GT(n, 0u);
    EXPECT_EQ(noted[n - 1], "metrics.jsonl") << "before " << noted[n];
  }
  EXPECT_EQ(checkpoints, 4);
}

}  // namespace tally::train_again_test
