// One training step: forward, backward, clipping, optimiser; on devices that have graphs captured once and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/finite.hpp"
#include "core/device/graph.hpp"
#include "core/device/staging_buffer.hpp"
#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/data/sequence_parts.hpp"

namespace tally {

class ParameterShares;
class TreeSum;

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
  std::int64_t sequences = 0;    // in all steps so far
  double seconds = 0;            // of training so far, earlier parts of a resumed run included
  std::string note = {};         // what a user should know about how steps are computed, told once
};

// Throws Diverged("[train] step N: the <tensor> is not finite<why>").
[[noreturn]] void report_divergence(std::int64_t n, std::string_view tensor, std::string_view why);

// Calls f; what the search for the first operation finds (autograd/finite.hpp) gets the step it was found in.
template <class F>
auto at_step(std::int64_t n, F&& f) {
  try {
    return f();
  } catch (const NotFinite& error) {
    throw Diverged(concat("[train] step ", n, ": ", error.what()));
  }
}

class TrainStep {
 public:
  // Keeps references to both; the optimiser's parameters are those of the model that take gradients. seed: of the run.
  // micro_batch: so many sequences at a time, whose gradients are added in the tree of tasks/training/tree_sum.hpp; 0:
  // all of them. ProcessGroup share the micro-batches; each ends the step with the same parameters. shares: the
  // optimiser is one of shares->own().
  TrainStep(SequenceModel& model, Optimizer& optimizer, const OptimizerOptions& options, std::uint64_t seed,
            std::int64_t micro_batch = 0, const ParameterShares* shares = nullptr);

  // Step n counts from 1 to `steps`. Throws Diverged naming step and first tensor; model and optimiser are then as they
  // were. Fills in all of the report but tokens, sequences and seconds.
  StepReport operator()(const Batch& batch, std::int64_t n, std::int64_t steps);

 private:
  void take(const SequenceParts& sequences, const Tensor& hyperparameters);
  void compute();
  void compute_gradients();
  // Backward from the loss of this rank's last part, undefined where it has none; what is done is sent to the other
  // ranks. The loss and the gradients of the whole batch.
  std::vector<Tensor> exchange_gradients(const Tensor& part_loss, TreeSum& total);
  // The parts that the rank computes.
  std::span<const SequencePart> parts_of(std::int64_t rank) const;
  void check_finite(const StepReport& report, const std::vector<double>& norms) const;

  SequenceModel& model_;
  Optimizer& optimizer_;
  OptimizerOptions options_;
  std::uint64_t seed_;
  std::int64_t micro_batch_;
  const ParameterShares* shares_;
  const ProcessGroup& ranks_;
  std::unique_ptr<GradientReducer> exchange_;  // null where alone
  NamedTensors parameters_;
  std::vector<SequencePart> parts_;  // of the batch at work
  // What goes in: tokens, targets and loss mask of all parts, the step [1] that dropout draws for, 1 over the number of
  // positions that the loss is the mean of [1], the optimiser's hyperparameters [parameters, row]; where texts are
  // separate and the model reads where their tokens stand, these places.
  enum In : std::size_t { tokens, targets, loss_mask, step, weight, rows, positions };
  // What comes out: loss [1], the gradients' squared norms [parameters] f64, ids of the largest logits, i64.
  enum Out : std::size_t { loss, squares, best };
  StagingBuffer in_, out_;
  GraphedStep work_;
  bool reads_positions_;            // the model does
  std::int64_t positions_end_ = 0;  // of a batch whose texts are separate
  bool noted_ = false;
};

}  // namespace tally
