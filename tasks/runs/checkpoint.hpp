// The file of a checkpoint: its name, its contents, writing and reading.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/safetensors.hpp"
#include "nn/module.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// The description of the model in a checkpoint, so that its parameters are never loaded into a different model. Shapes
// do not determine the number of heads or the activation.

// Settings by name, as text: {"model.heads", "4"}, {"pe", "cope"}, {"vocabulary", "w r i 0 1"}. It holds all settings
// that determine the function of the parameters. Settings that affect only training, or choose between equivalent
// computations, are left out.
using ModelRecord = std::map<std::string, std::string>;

// All options of a configuration except the seed, by full name: {"optimiser.lr", "0.001"}.
std::map<std::string, std::string> settings_of(const RunConfig& config);

ModelRecord model_record(const RunConfig& config, const Task& task);

// An object of strings, on one line. Reading throws Error, naming `source`, if it is not such an object.
std::string model_record_text(const ModelRecord& record);
ModelRecord model_record_from_text(const std::string& text, const std::string& source);

// Whether two records of a vocabulary (Task::vocabulary_record()) allow the same ids. For token files without a
// tokenizer, only the number of ids is known and compared.
bool same_vocabulary(std::string_view a, std::string_view b);
// For messages: "300 tokens of the tokenizer with the checksum 1a2b3c4d".
std::string vocabulary_text(std::string_view record);

// Throws Error naming the first setting that differs between the record and the configuration, and both values.
// Settings missing from the record are not compared: older versions did not write them.
void check_same_model(const ModelRecord& record, const RunConfig& config, const Task& task);
// The same for Task::data_record(): a run is resumed only with the data that it began with, whatever its path.
void check_same_data(const std::string& record, const Task& task);

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
