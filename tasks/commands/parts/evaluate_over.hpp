// tally eval --over: error rates of trained models as one option of their task changes, such as the sequence length.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/results/report.hpp"
#include "tasks/results/varied.hpp"

namespace tally {

// Evaluations of a trained run at other values of a task option, for tally eval --over and the contexts of tally
// reproduce.

// A finished run. Its model is built once, so all questions must have the same changes.
class VariedRun {
 public:
  VariedRun(const RunSummary& run, const CommonOptions& common, const std::atomic<bool>& stop)
      : run_(run), common_(common), stop_(stop) {}

  // Evaluates `count` sequences (0: the whole split), of generated answers if `generate`. Returns nothing after `stop`,
  // or after an Error, such as for a length that the encoding refuses; `refusal` is then its text.
  std::optional<Evaluation> evaluate(const VariedQuestion& question, std::string& refusal, std::int64_t count = 0,
                                     bool generate = false);
  // The step of the evaluated checkpoint, once evaluate() has returned a result.
  std::int64_t step() const { return trained_->step; }

 private:
  const RunSummary& run_;
  const CommonOptions& common_;
  const std::atomic<bool>& stop_;
  std::optional<TrainedModel> trained_;
};

struct OverSettings {
  std::vector<std::string> folders, over, changes;
  std::string split;
  std::int64_t count = 0;
  bool generate = false;
};

// A table with a row per group of runs that differ only in the seed. Throws UsageError for an option that does not fit.
Result evaluate_over(const OverSettings& settings, const CommonOptions& common);

}  // namespace tally
