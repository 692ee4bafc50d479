// Times of a training step, of attention alone, and of single operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/encoding_choice.hpp"
#include "nn/optim/optimizer.hpp"
#include "nn/transformer.hpp"

namespace tally {

struct BenchOptions {
  ModelOptions model;
  EncodingChoice encoding;
  std::int64_t length = 512, batch = 16, vocabulary = 16;
  std::int64_t steps = 5, warmup = 2;  // measured, and before that
  DType dtype = DType::f32;
};

// Median, shortest and longest of several runs, in seconds.
struct Times {
  double median = 0, min = 0, max = 0;
};

struct StepTimes {
  Times step;
  std::int64_t parameters = 0;
  double flops = 0;               // of all products: those of the weight matrices, and attention's over keys j <= i
  double system_allocations = 0;  // times a step took memory from the system, on average; 0 once blocks are reused
  double tensor_bytes = 0;        // of all tensors, when they were most
};

// The update of a step that is timed: AdamW.
OptimizerOptions bench_optimiser();

// A whole training step on random tokens: forward, cross entropy over every position, backward, the update.
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

// The operations of a training step of this model, one by one, at its shapes; and one AdamW update of a matrix of the
// MLP (as `forward`; there is no backward).
std::vector<OperationTimes> bench_operations(const BenchOptions& options);

}  // namespace tally
