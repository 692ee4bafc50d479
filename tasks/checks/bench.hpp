// Times of a training step and of one attention layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/model_shapes.hpp"

namespace tally {

struct BenchOptions {
  RunConfig config;
  std::int64_t length = 0;             // length of the longest training sequences
  std::int64_t max_length = 0;         // longest length the model must accept, in evaluation too
  std::int64_t vocabulary = 0;         // symbols
  std::int64_t steps = 5, warmup = 2;  // measured steps; steps before them

  // Length and vocabulary come from the task. The batch is no larger than the number of training sequences.
  explicit BenchOptions(RunConfig run);
  ModelSetting model() const { return {config.model, config.encoding, vocabulary, max_length, config.dtype()}; }
};

// The measurements, as `tally bench --json` prints them. Times are the median (step_s), minimum and maximum (min_s,
// max_s). If there are several directions, their names come first (forward_s, forward_min_s). Work is in 10^9 a second.

// Times the training step of a run of this configuration (tasks/training/train_step.hpp), on its batches from the first
// on. Reports size and time; the tokens, loss and gradient norm of the last step; gflop of all matmuls: the weight
// matrices, and attention over keys j <= i; peak bytes of all tensors; how often a step allocated memory from the
// system, on average, which is 0 once blocks are reused; and the size of the captured graph, if the step was captured.
JsonValue bench_step(const BenchOptions& options);

// Times attention of the first layer between its projections: from random q, k, v [B, H, T, d] to o, and back to the
// gradients of q, k, v and of the encoding's parameters. Rates count the matmuls of plain attention over keys j <= i.
JsonValue bench_attention(const BenchOptions& options);

// Billions of additions and multiplications a second of the matmul [8192, 256] x [256, 1024], the yardstick for the
// other rates.
double bench_gemm(DType dtype);

// The mean of the two middle ones if their number is even. Not for no numbers.
inline double median_of(std::span<const double> ascending) {
  const std::size_t n = ascending.size();
  return (ascending[(n - 1) / 2] + ascending[n / 2]) / 2;
}

// The cost of an encoding: a training step of flip-flop's quick preset, relative to the same step with `none`.
struct RelativeCost {
  std::vector<double> times;  // one ratio for each round, ascending
  double memory = 0;          // ratio of the peak bytes of tensors
  double bytes = 0;
  double median() const { return median_of(times); }
};

// A round measures a few steps of both models, because other load on the machine affects neighbouring measurements
// alike. All rounds take about two seconds. The memory is counted. Throws Error as training does.
RelativeCost cost_relative_to_none(const EncodingChoice& choice);

// The time that a run will take, extrapolated from a few measured steps and evaluations.

// Seconds.
struct RunCost {
  double training = 0;
  double evaluations = 0;  // all of the run, with generated answers
};

// Trains up to four steps, takes the fastest, and evaluates a batch of each split. Writes nothing. Throws Error as
// training does.
RunCost measure_cost(const RunConfig& config);

}  // namespace tally
