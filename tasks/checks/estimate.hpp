// Predicts bytes of memory before any work starts. Some encodings have a form that depends on a
// learned number (EncodingTraits::memory_is_learned); the estimate then covers the most expensive value and sets
// MemoryEstimate::at_most. Texts masked from each other are counted as the sequences that hold them.
#pragma once

#include <cstdint>

#include "tasks/checks/bench.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/model_shapes.hpp"
#include "tasks/training/parameter_shares.hpp"

namespace tally {

// Memory of work on a batch of `sequences` of `length` tokens. The work itself runs on a counting device. The total is
// the peak that the default device's own counters will show, to the byte, for sequences of exactly this length.
// check_fits compares it with the available memory.

// A run: its steps, evaluations and checkpoints. If ranks share the run, the memory of this rank. On the CPU that is an
// upper bound, because the number of buckets in flight depends on the other ranks.
MemoryEstimate estimate_training(const RunConfig& config, const Task& task,
                                 OptimizerState state = OptimizerState::whole);
// A model that is made and filled from a checkpoint, tensor by tensor.
MemoryEstimate estimate_loading(const ModelSetting& model);
MemoryEstimate estimate_loading(const RunConfig& config, const Task& task);
// An evaluation.
MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t sequences,
                                   std::int64_t length);
// The same with the materialised attention of all layers kept, after a pass with gradients if they are wanted.
MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients);
// The benchmarks of tasks/checks/bench.hpp: a training step, a layer's attention.
MemoryEstimate estimate_step(const ModelSetting& timed, const RunConfig& config, std::int64_t length,
                             std::int64_t steps);
MemoryEstimate estimate_attention(const BenchOptions& timed);

}  // namespace tally
