// Predicts bytes of memory before any work starts. Some encodings have a form that depends on a
// learned number (EncodingTraits::memory_is_learned); the estimate then covers the most expensive value and sets
// MemoryEstimate::at_most. Texts masked from each other are counted as the sequences that hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Whether attention needs memory linear in the length. The memory is counted, not declared by the encodings. A
// combination may cost more than any of its parts: for example a policy that reads only the score, combined with keys
// that tokens change.

// Memory of one assignment of a choice, on the default device, with the choice's options. Measured on one layer of 4
// heads of width 64, forward and backward, in f32, over one text of 16,384 tokens.
struct AttentionMemory {
  std::string form;      // tiled or composed (attention_form)
  bool squares = false;  // grows with the square of the length: by more than a number for every fourth pair
  double bytes = 0;      // peak bytes of all tensors
};
// Throws Error if the model cannot have this assignment.
AttentionMemory attention_memory(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment);

// One line for each combination in a choice whose memory grows with the square of the length. The line gives the
// attention form.
std::vector<std::string> square_memory_notes(const EncodingChoice& choice);

}  // namespace tally
