// What work will need, told before any of it is there: parameters by name, and bytes of memory. Of encodings whose form
// depends on a learned number (EncodingTraits::memory_is_learned) the most that any value of it takes, of texts that do
// not see each other the most that any text takes, and the estimate says so (MemoryEstimate::at_most).
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

// A model's parameters by path. The second makes one whose tensors take no memory, and throws what that throws.
NamedShapes shapes_of(const SequenceModel& model);
NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length);
NamedShapes parameter_shapes(const RunConfig& config, const Task& task);

std::int64_t parameter_count(const NamedShapes& shapes);
// Of these, what encodings brought.
std::int64_t encoding_parameter_count(const NamedShapes& shapes);

// A model, and the longest sequence that its learned tables hold.
struct ModelSetting {
  const ModelOptions& options;
  const EncodingChoice& encoding;
  std::int64_t vocabulary = 0, max_length = 0;
  DType dtype = DType::f32;
};
ModelSetting model_of(const RunConfig& config, const Task& task);

// How attention of the first so many layers is computed: "tiled", "composed" where it is written out (asked for, or by
// an encoding with weights, a whole attention or a policy that tiles do not have), "tiled and composed" where heads or
// layers differ, "none" in a model without.
std::string attention_form(const ModelSetting& model, std::int64_t layers);

// Throws Error naming the limit when an encoding of the model does not take sequences of this length.
void check_length(const ModelSetting& model, std::int64_t length);
// Whether the model has rows for positions that no training sequence reaches, and this split does.
bool reaches_untrained_rows(const RunConfig& config, const Task& task, const Split& split);

// Memory of work on a batch of `sequences` of `length` tokens: the work itself runs on a device that only counts, so
// the total is what the default device's own counters will show at their highest, to the byte, for sequences of just
// this length. Whether there is as much is for check_fits.

// Of a run: its steps, evaluations and checkpoints. Of ranks that share it, what this one takes: on the CPU at most,
// for how many of its buckets are on their way at once depends on the others.
MemoryEstimate estimate_training(const RunConfig& config, const Task& task,
                                 OptimizerState state = OptimizerState::whole);
// Of a model that is made and filled from a checkpoint, tensor by tensor.
MemoryEstimate estimate_loading(const ModelSetting& model);
MemoryEstimate estimate_loading(const RunConfig& config, const Task& task);
// Of what a model answers.
MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t sequences,
                                   std::int64_t length);
// The same with the attention of all layers written out and kept, after a pass that gives gradients if those are
// wanted.
MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients);
// Of what tasks/checks/bench.hpp times: a training step, a layer's attention, operations one by one.
MemoryEstimate estimate_step(const ModelSetting& timed, const RunConfig& config, std::int64_t length,
                             std::int64_t steps);
MemoryEstimate estimate_attention(const BenchOptions& timed);
MemoryEstimate estimate_operations(const BenchOptions& timed);

}  // namespace tally
