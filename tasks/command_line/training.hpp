// Shared by `tally train` and `tally resume`: the options for watching a run, the checks, and the training.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/distributed/process_group.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/runs/train.hpp"

namespace tally {

// Progress of a run for people: start, one redrawn line on a terminal (plain lines otherwise), evaluations, end.

struct ProgressField {
  std::string text;
  int importance = 0;  // the least important fields are dropped first
};
// Joins the fields that fit into `width` columns; all of them if it is 0.
std::string progress_line(std::vector<ProgressField> fields, std::size_t width);

class ProgressPrinter : public TrainObserver {
 public:
  // quiet: only evaluations of the last step. Everything goes to stderr when `to_stderr` (stdout is then free for
  // JSON).
  ProgressPrinter(bool quiet, bool to_stderr);
  // Clears the redrawn line, however the run ends.
  ~ProgressPrinter() override;
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void started(const RunConfig& config, const SequenceModel& model, std::int64_t from_step) override;
  void stepped(const StepReport& report) override;
  void evaluating(std::int64_t step, const Split& split, std::int64_t done, std::int64_t count) override;
  void evaluated(std::int64_t step, const Evaluation& evaluation) override;
  void message(const std::string& text) override;
  // Time, tokens/s, peak memory and output paths.
  void finished(const RunFolder& folder, TrainOutcome outcome);

 protected:
  // Whole lines, as they are.
  void print(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void clear_line();
  std::string epoch_text(std::int64_t sequences) const;
  // Whether enough time has passed since the last line.
  bool is_due(bool last);
  void draw(std::vector<ProgressField> fields);
  void count_evaluated(std::int64_t done);
  // "3.2 s left" for the steps after this one and all evaluations.
  std::string left_text(std::int64_t step) const;

  bool quiet_;
  std::FILE* out_;
  bool terminal_;
  bool line_drawn_ = false;
  std::int64_t first_step_ = 0, steps_ = 0;
  std::int64_t sequences_of_epoch_ = 0;  // 0: there are no epochs
  std::int64_t first_tokens_ = -1, tokens_ = 0;
  double first_seconds_ = 0, seconds_ = 0;
  Clock::time_point started_{}, last_drawn_{};

  std::size_t split_width_ = 0;  // of the longest name of a split
  double seconds_per_step_ = 0, tokens_per_step_ = 0;
  struct {
    double all_tokens = 0;             // of all evaluations from first_step_ on
    double tokens = 0, seconds = 0;    // evaluated so far
    std::int64_t done = 0, count = 0;  // sequences of the current split
    double length = 0;                 // of each of them
    Clock::time_point since{};         // of the last count
  } evaluation_;
};

// "  4.9% wrong (17,346 of 354,000 tokens, 95% interval 4.8-5%); 34 of 1,000 sequences; loss 0.12" in the colours of
// a stream. Without details: "  4.9% of 354,000 tokens wrong, loss 0.12".
std::string evaluation_text(const Evaluation& evaluation, std::FILE* stream, bool details = true);
// "2.5 s", "3 min 20 s", "1 h 5 min".
std::string duration_text(double seconds);
// Peak resident memory of the process in MiB.
std::int64_t peak_rss_mib();

// Help of the option that becomes the argument `profile`.
inline constexpr const char* profile_help = "file for a Chrome trace; a table of the operations is printed at the end";

// Checks before any file is written that task and model can be made. The model must accept the sequences of all splits
// (UsageError otherwise) and fit in memory (Error with the estimate). Returns the estimate.
MemoryEstimate check_can_train(const RunConfig& config, OptimizerState state = OptimizerState::whole);

// Opens the folder of a run that several ranks train: the first rank calls open(), the others attach to it.
template <class F>
RunFolder open_together(const std::string& path, F&& open) {
  const ProcessGroup& ranks = ProcessGroup::world();
  if (ranks.alone()) return open();
  std::optional<RunFolder> folder;
  if (ranks.first()) folder.emplace(open());
  ranks.barrier();
  if (!folder) folder.emplace(RunFolder::open_beside(path));
  return std::move(*folder);
}

// Throws UsageError if a run has too little work for the number of ranks.
void check_ranks(const RunConfig& config);

// Trains to the end and prints the progress. Returns the results of a finished run. `profile`: file for a Chrome trace;
// empty for none.
Result run_training(RunFolder folder, const CommonOptions& common, const std::string& profile,
                    OptimizerState state = OptimizerState::whole);
inline constexpr const char* split_optimiser_help =
    "with several processes, each stores only its share of the optimiser's state (ZeRO-1); the same bits";

}  // namespace tally
