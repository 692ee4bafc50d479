// tally eval --over: error rates of trained models as one option of their task changes, such as the sequence length.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/command_line/command.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/results/report.hpp"
#include "tasks/results/varied.hpp"

namespace tally {

// Evaluations of a trained run at other values of a task option, for tally eval --over and the contexts of tally
// reproduce.

using TaskSettings = std::vector<std::pair<std::string, std::string>>;

struct VariedQuestion {
  std::string option, value;
  TaskSettings beside = {};  // other task options that change with it
  std::string split;
  std::int64_t count = 0;  // sequences; 0: the whole split
  bool generate = false;   // answers are fed back
};

// Runs that differ only in the seed, at one value.
struct VariedCell {
  std::vector<Evaluation> results = {};
  std::string refusal = {};  // why a run has no result: its encoding does not support this length
};

class VariedRun {
 public:
  // A finished run. changes: to its encoding, for the evaluation.
  VariedRun(const RunSummary& run, std::vector<std::string> changes, const CommonOptions& common,
            const std::atomic<bool>& stop);

  // Adds a result or a refusal. Adds nothing after `stop`.
  void evaluate(const VariedQuestion& question, VariedCell& cell);
  // The step of the evaluated checkpoint, once evaluate() has added a result.
  std::int64_t step() const { return trained_->step; }

 private:
  const RunSummary& run_;
  std::vector<std::string> changes_;
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
