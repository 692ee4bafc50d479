// Times of a training step, of attention alone, and of single operations.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

struct BenchOptions {
  RunConfig config;
  std::int64_t length = 0;             // of the longest sequences that are trained on
  std::int64_t max_length = 0;         // that the model must take, evaluation's too
  std::int64_t vocabulary = 0;         // symbols
  std::int64_t steps = 5, warmup = 2;  // measured, and before that

  // Lengths and symbols are the task's; a batch has no more sequences than there are.
  explicit BenchOptions(RunConfig run);
};

// What is measured, as `tally bench --json` tells it. Times: median (step_s), shortest and longest (min_s, max_s), with
// the direction's name before them where there are several (forward_s, forward_min_s); work in 10^9 a second.

// The training step of a run of this configuration (tasks/training/train_step.hpp) on its batches from the first on:
// its size and time; tokens, loss and norm of the gradients of the last step; gflop of all products, those of the
// weight matrices and attention's over keys j <= i; bytes of all tensors when they were most; and how often a step took
// memory from the system, on average: 0 once blocks are reused.
JsonValue bench_step(const BenchOptions& options);

// Attention of the first layer between its projections: from random q, k, v [B, H, T, d] to o, and back to their
// gradients and those of the encoding's parameters. Rates are of plain attention's products over keys j <= i.
JsonValue bench_attention(const BenchOptions& options);

// Billions of additions and multiplications a second of [8192, 256] x [256, 1024]: what the others are measured
// against.
double bench_gemm(DType dtype);

// The operations of a training step of this model, one by one, at its shapes; and one update of a matrix of the MLP by
// AdamW (as forward; there is no backward). Rates of products count additions and multiplications (backward takes twice
// as many); those of the others bytes that have to be moved at the least: forward reads the inputs and writes the
// result, backward reads inputs and d_y and writes d_x.
std::vector<JsonValue> bench_operations(const BenchOptions& options);

}  // namespace tally
