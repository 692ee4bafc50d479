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

// Observes a run. All hooks do nothing unless overridden.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const RunConfig& config, const SequenceModel& model, std::int64_t from_step) {
    (void)config, (void)model, (void)from_step;
  }
  virtual void stepped(const StepReport& report) { (void)report; }
  // Before each batch of an evaluation: `done` of its `count` sequences are evaluated.
  virtual void evaluating(std::int64_t step, const Split& split, std::int64_t done, std::int64_t count) {
    (void)step, (void)split, (void)done, (void)count;
  }
  virtual void evaluated(std::int64_t step, const Evaluation& evaluation) { (void)step, (void)evaluation; }
  virtual void message(const std::string& text) { (void)text; }
};

enum class TrainOutcome { done, interrupted };

// Trains from the newest valid checkpoint (or from the start) to the last step and writes results.json. If it is killed
// at any moment and called again, checkpoints are bit-identical and metrics are the same except for times. If `stop`
// becomes true, the run ends after the current step, with a checkpoint. Throws Diverged. Ranks of a process group
// (core/distributed/process_group.hpp) train the run together, and one of them has a folder that writes. The bytes are
// the same as with one process, whichever optimiser state each rank stores. Throws Error if an update rule cannot split
// its state. If the folder's configuration was changed, checkpoint and metrics are read before it is written.
TrainOutcome train(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop,
                   OptimizerState state = OptimizerState::whole);

}  // namespace tally
