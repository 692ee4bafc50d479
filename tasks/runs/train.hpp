// The training loop: a whole run with evaluations, checkpoints, metrics and exact resume.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tasks/evaluation/evaluate.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/training/parameter_shares.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {

// Watches a run. All hooks do nothing unless overridden.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const RunConfig& config, const SequenceModel& model, std::int64_t from_step) {
    (void)config, (void)model, (void)from_step;
  }
  virtual void stepped(const StepReport& report) { (void)report; }
  virtual void evaluated(std::int64_t step, const Evaluation& evaluation) { (void)step, (void)evaluation; }
  virtual void message(const std::string& text) { (void)text; }
};

enum class TrainOutcome { done, interrupted };

// Trains from the newest good checkpoint (or from the start) to the last step and writes results.json. Killed at any
// moment and called again, it ends with the same checkpoints, byte for byte, and the same metrics but for times.
// `stop` becoming true ends the run after the step at work, with a checkpoint. Throws Diverged.
// ProcessGroup (core/distributed/process_group.hpp) train it together, one of them with a folder that writes: with the
// same bytes as one process, whatever each keeps of the optimiser's state. Throws Error where an update rule cannot
// split it. Where the folder's configuration was changed, checkpoint and metrics are read before it is written.
TrainOutcome train(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop,
                   OptimizerState state = OptimizerState::whole);

}  // namespace tally
