// One training step: forward, backward, clipping, optimiser. On devices with graphs it is captured once and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

namespace tally {

class ParameterShares;
class TreeSum;

// Thrown if a loss, a gradient or an update is not finite. The run stops, and this state is never saved.
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
  double seconds = 0;            // of training so far, including earlier parts of a resumed run
  std::string note = {};         // a message to the user about how steps are computed, reported once
};

// Throws Diverged("[train] step N: the <tensor> is not finite<why>").
[[noreturn]] void report_divergence(std::int64_t n, std::string_view tensor, std::string_view why);

// Calls f, and adds the step to an error from the search for the first bad operation (autograd/finite.hpp).
template <class F>
auto at_step(std::int64_t n, F&& f) {
  try {
    return f();
  } catch (const NotFinite& error) {
    throw Diverged(formatted("[train] step {}: {}", n, error.what()));
  }
}

class TrainStep {
 public:
  // Keeps references to both. The optimiser's parameters are the model's parameters that take gradients. seed: the
  // run's seed. micro_batch: sequences computed at a time, with gradients added in the tree of
  // tasks/training/tree_sum.hpp; 0: all. Ranks of a process group share the micro-batches; each ends the step with the
  // same parameters. shares: if set, the optimiser updates shares->own(). random_positions: if set, the tokens of a
  // step have positions that depend only on the seed and the step's number.
  TrainStep(SequenceModel& model, Optimizer& optimizer, std::uint64_t seed, std::int64_t micro_batch = 0,
            const ParameterShares* shares = nullptr, std::optional<RandomPositions> random_positions = {});

  // Step n counts from 1 to `steps`. Throws Diverged naming the step and the first tensor; model and optimiser are then
  // unchanged. Fills in all of the report except tokens, sequences and seconds.
  StepReport operator()(const Batch& batch, std::int64_t n, std::int64_t steps);

  // The captured step; null if none is captured.
  const DeviceGraph* graph() const { return work_.graph(); }

 private:
  void take(const SequenceParts& sequences, const Tensor& hyperparameters, std::int64_t n);
  void compute();
  void compute_gradients();
  // Runs backward from the loss of this rank's last part, undefined if the rank has no part. Sends finished gradients
  // to the other ranks meanwhile. Returns the loss and the gradients of the whole batch.
  std::vector<Tensor> exchange_gradients(const Tensor& part_loss, TreeSum& total);
  // The parts that this rank computes.
  std::span<const SequencePart> parts_of(std::int64_t rank) const;
  void check_finite(const StepReport& report, const std::vector<double>& norms) const;

  SequenceModel& model_;
  Optimizer& optimizer_;
  std::uint64_t seed_;
  std::int64_t micro_batch_;
  const ParameterShares* shares_;
  std::optional<RandomPositions> random_positions_;
  const ProcessGroup& ranks_;
  std::unique_ptr<GradientReducer> exchange_;  // null for a single process
  NamedTensors parameters_;
  std::vector<SequencePart> parts_;  // of the current batch
  // Inputs: tokens, targets and loss mask of all parts; the step [1] for dropout; the weight [1], 1 over the number of
  // positions that count in the loss; the optimiser's hyperparameters [parameters, row]; and the positions of tokens,
  // if they are random, or if texts are separate and the model reads positions.
  enum In : std::size_t { tokens, targets, loss_mask, step, weight, rows, positions };
  // Outputs: loss [1], the gradients' squared norms [parameters] f64, ids of the largest logits, i64.
  enum Out : std::size_t { loss, squares, best };
  StagingBuffer in_, out_;
  GraphedStep work_;
  bool reads_positions_;            // whether the model does
  std::int64_t positions_end_ = 0;  // of a batch with separate texts
  bool noted_ = false;
};

}  // namespace tally
