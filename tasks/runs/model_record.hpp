// The description of the model in a checkpoint, so that its parameters are never loaded into a different model. Shapes
// do not determine the number of heads or the activation.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

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

}  // namespace tally
