// Times of a training step, of attention alone, and of single operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/config.hpp"

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

// Median, shortest and longest of several runs, in seconds.
struct Times {
  double median = 0, min = 0, max = 0;
};

struct StepTimes {
  Times step;
  std::int64_t parameters = 0;
  double tokens = 0;               // of a batch, on average
  double flops = 0;                // of all products: those of the weight matrices, and attention's over keys j <= i
  double system_allocations = 0;   // times a step took memory from the system, on average; 0 once blocks are reused
  double tensor_bytes = 0;         // of all tensors, when they were most
  double loss = 0, grad_norm = 0;  // of the last step
};

// The training step of a run of this configuration (tasks/train_step.hpp) on its batches from the first on.
StepTimes bench_step(const BenchOptions& options);

struct AttentionTimes {
  Times forward, backward, both;
  double forward_flops = 0, backward_flops = 0;  // of plain attention's products over keys j <= i
  double tensor_bytes = 0;                       // as above, q, k, v and their gradients included
};

// Attention of the first layer between its projections: from random q, k, v [B, H, T, d] to o, and back to their
// gradients and those of the encoding's parameters.
AttentionTimes bench_attention(const BenchOptions& options);

// Additions and multiplications a second of [8192, 256] x [256, 1024]: what the others are measured against.
double bench_gemm(DType dtype);

struct OperationTimes {
  std::string name;   // "matmul"
  std::string shape;  // "[8192, 256] x [256, 1024]"
  Times forward, backward;
  // Additions and multiplications for products (backward takes twice as many); else bytes that have to be moved at the
  // least: forward reads the inputs and writes the result, backward reads inputs and d_y and writes d_x.
  bool product = false;
  double forward_work = 0, backward_work = 0;
};

// The operations of a training step of this model, one by one, at its shapes; and one update of a matrix of the MLP by
// AdamW (as `forward`; there is no backward).
std::vector<OperationTimes> bench_operations(const BenchOptions& options);

}  // namespace tally
