// The training loop: one step, and a whole run with evaluations, checkpoints, metrics and exact resume.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "nn/optim/optimizer.hpp"
#include "tasks/batch.hpp"
#include "tasks/evaluate.hpp"
#include "tasks/run_folder.hpp"

namespace tally {

// A loss, a gradient or an update that is not finite: the run stops here and this state is never saved.
class Diverged : public Error {
 public:
  using Error::Error;
};

struct StepReport {
  std::int64_t step = 0, steps = 0;
  double loss = 0, token_error = 0, sequence_error = 0;
  double lr = 0, grad_norm = 0;  // norm before clipping
  std::int64_t tokens = 0;       // in all steps so far
  double seconds = 0;            // of training so far, earlier parts of a resumed run included
};

// One update: forward, backward, clipping, optimiser. Step n counts from 1 to `steps`. Throws Diverged naming step and
// first tensor. Fills in all of the report but tokens and seconds.
StepReport train_step(Transformer& model, Optimizer& optimizer, const OptimizerOptions& options, const Batch& batch,
                      std::int64_t n, std::int64_t steps, std::uint64_t seed);

// Watches a run. All hooks do nothing unless overridden.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const RunConfig& config, const Transformer& model, std::int64_t from_step) {
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
// Where the folder's configuration was changed, checkpoint and metrics are read before it is written.
TrainOutcome train(RunFolder& folder, TrainObserver& observer, const std::atomic<bool>& stop);

}  // namespace tally
