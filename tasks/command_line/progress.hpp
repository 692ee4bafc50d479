// Progress of a run for people: start, one redrawn line on a terminal (plain lines otherwise), evaluations, end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tasks/runs/train.hpp"

namespace tally {

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

  bool quiet_;
  std::FILE* out_;
  bool terminal_;
  bool line_drawn_ = false;
  std::int64_t first_step_ = 0, steps_ = 0;
  std::int64_t sequences_of_epoch_ = 0;  // 0: there are no epochs
  std::int64_t first_tokens_ = -1, tokens_ = 0;
  double first_seconds_ = 0, seconds_ = 0;
  Clock::time_point last_drawn_{};
};

// "ood-sparse         4.9% wrong (17,346 of 354,000 tokens, 95% interval 4.8-5%), sequences ..., loss 0.12"
std::string evaluation_text(const Evaluation& evaluation);
// "2.5 s", "3 min 20 s", "1 h 5 min".
std::string duration_text(double seconds);
// Peak resident memory of the process in MiB.
std::int64_t peak_rss_mib();

}  // namespace tally
