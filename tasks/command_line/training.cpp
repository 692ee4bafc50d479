#include "tasks/command_line/training.hpp"

#include <filesystem>
#include <memory>
#include <optional>

#include "core/device/backend.hpp"
#include "core/io/atomic_file.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/profile_report.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/command_line/signals.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/train.hpp"
#include "tasks/training/tree_sum.hpp"

namespace tally {
namespace {

// Prints progress and collects the profile after every step.
class ProfilingPrinter final : public ProgressPrinter {
 public:
  ProfilingPrinter(const CommonOptions& common, const std::string& profile)
      : ProgressPrinter(common.quiet, common.json) {
    if (!profile.empty()) report_.emplace(profile);
  }

  void stepped(const StepReport& report) override {
    ProgressPrinter::stepped(report);
    if (report_) report_->collect();
  }

  void write_profile() {
    if (!report_) return;
    report_->write();
    print(report_->table());
  }

 private:
  std::optional<ProfileReport> report_;
};

}  // namespace

MemoryEstimate check_can_train(const RunConfig& config, OptimizerState state) {
  const MemoryEstimate need = as_usage([&] {
    const std::unique_ptr<Task> task = config.make_task();
    (void)task->example(task->splits().front().name, 0);  // the training split may be empty
    MemoryEstimate estimate = estimate_training(config, *task, state);
    check_length(model_of(config, *task), task->max_length());  // checked now, not when the first such sequence is read
    return estimate;
  });
  check_fits(need);
  return need;
}

void check_ranks(const RunConfig& config) {
  const ProcessGroup& ranks = ProcessGroup::world();
  if (ranks.alone()) return;
  const std::int64_t height = config.run.at_once() > 0 ? config.run.at_once() : config.run.batch;
  const std::int64_t parts = (config.run.batch + height - 1) / height;
  const std::int64_t busy = tree_share(parts, ranks.size(), 0).ranks;
  if (busy < ranks.size()) {
    throw UsageError(
        formatted("[mpi] {} processes share the micro-batches of a step, and {}{} enough for {}; --micro-batch {} of "
                  "--batch {} says how many there are",
                  ranks.size(), parts, parts == 1 ? " is" : " are", busy, height, config.run.batch));
  }
}

namespace {

// Also writes the curves of a run that was killed after its results were written.
void write_curves(const RunFolder& folder, bool was_finished) {
  const std::string path = folder.path() + "/curves.svg";
  std::error_code error;
  if (was_finished && std::filesystem::exists(path, error)) return;
  write_file_atomically(path, svg_text(report_chart(make_report({folder.path()}))));
}

}  // namespace

Result run_training(RunFolder folder, const CommonOptions& common, const std::string& profile, OptimizerState state) {
  const std::atomic<bool>& stop = watch_signals();
  ProfilingPrinter printer(common, profile);
  const bool was_finished = folder.finished();
  const TrainOutcome outcome = train(folder, printer, stop, state);
  if (outcome == TrainOutcome::done && folder.writes()) write_curves(folder, was_finished);
  if (!was_finished) printer.finished(folder, outcome);
  printer.write_profile();
  // With several ranks, another one may have received the signal.
  const int signal = signal_exit_code() == 0 ? exit_code::terminated : signal_exit_code();
  const int code = outcome == TrainOutcome::done ? exit_code::done : signal;
  // People have already read the evaluations during training.
  return common.json && folder.finished() ? Result{code, folder.read_results()} : Result{code};
}

}  // namespace tally
