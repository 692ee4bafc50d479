// Predicts parameters by name and bytes of memory before any work starts. Some encodings have a form that depends on a
// learned number (EncodingTraits::memory_is_learned); the estimate then covers the most expensive value. For texts
// masked from each other it covers the most expensive texts. Such estimates set MemoryEstimate::at_most.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "core/shape.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/training/parameter_shares.hpp"

namespace tally {

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// A model's parameters by path. The second overload makes a model whose tensors take no memory, and throws the same
// errors.
NamedShapes shapes_of(const SequenceModel& model);
NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length);
NamedShapes parameter_shapes(const RunConfig& config, const Task& task);

std::int64_t parameter_count(const NamedShapes& shapes);
// The share of encodings among these parameters.
std::int64_t encoding_parameter_count(const NamedShapes& shapes);

// A model, and the longest sequence that its learned tables cover.
struct ModelSetting {
  const ModelOptions& options;
  const EncodingChoice& encoding;
  std::int64_t vocabulary = 0, max_length = 0;
  DType dtype = DType::f32;
};
ModelSetting model_of(const RunConfig& config, const Task& task);

// How attention of the first `layers` layers is computed. "composed" means that it is materialised, because the user
// chose it or the encoding requires it: one with weights, a whole attention or a policy that tiled attention does not
// support. "tiled and composed" means that heads or layers differ. "none" is a model without attention.
std::string attention_form(const ModelSetting& model, std::int64_t layers);

// Throws Error naming the limit if an encoding of the model does not accept sequences of this length.
void check_length(const ModelSetting& model, std::int64_t length);
// Whether this split reaches rows of the model's position tables that no training sequence reaches.
bool reaches_untrained_rows(const RunConfig& config, const Task& task, const Split& split);

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
