// The file of a checkpoint: its name, its contents, writing and reading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.hpp"
#include "nn/module.hpp"
#include "tasks/runs/model_record.hpp"

namespace tally {

// "step-00000500.safetensors".
std::string checkpoint_name(std::int64_t step);
// The step of a checkpoint's name, -1 for any other name.
std::int64_t step_of_checkpoint(const std::string& name);

struct Checkpoint {
  std::int64_t step = 0;
  std::int64_t tokens = 0;     // trained on so far
  std::int64_t sequences = 0;  // trained on so far
  ModelRecord record = {};     // may be empty
  std::string data = {};       // Task::data_record(); may be empty
};

// A checkpoint on disk. Its checksums were verified when it was opened. Tensors stay on disk until they are loaded.
struct StoredCheckpoint : Checkpoint {
  std::optional<SafetensorsFile> file = {};  // none for step 0 of a run that was not imported
  // The tensors under the prefix: {"embedding.weight", ...} for "model.".
  std::vector<StoredTensor> tensors(std::string_view prefix) const;
};

// Parameters are stored under "model.", optimiser state under "optimiser.". The same state gives the same bytes. The
// metadata describes the model. It must not depend on the length of the run, or on the frequency of evaluations.
void write_checkpoint_file(const std::string& path, const Checkpoint& checkpoint, const NamedTensors& model,
                           const NamedTensors& optimiser);
// Throws Error if the file cannot be read, a checksum does not match, or the file holds another step.
StoredCheckpoint open_checkpoint_file(const std::string& path, std::int64_t step);

// Model weights with the names used in a checkpoint: {"model.embedding.weight", ...}.
NamedTensors with_prefix(const std::string& prefix, const NamedTensors& tensors);

}  // namespace tally
