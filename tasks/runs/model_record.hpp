// What a checkpoint records of the model that it belongs to, so that its parameters are never taken for those of
// another: shapes tell neither heads nor activations apart.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// By name, as text: {"model.heads", "4"}, {"pe", "cope"}, {"vocabulary", "w r i 0 1"}. All that decides which function
// the parameters stand for; not what training alone uses, nor which of two ways to the same numbers is taken.
using ModelRecord = std::map<std::string, std::string>;

// All options of a configuration, but the seed, by full name: {"optimiser.lr", "0.001"}.
std::map<std::string, std::string> settings_of(const RunConfig& config);

ModelRecord model_record(const RunConfig& config, const Task& task);

// An object of texts, on one line. Reading throws Error, naming `source`, when it is none.
std::string model_record_text(const ModelRecord& record);
ModelRecord model_record_from_text(const std::string& text, const std::string& source);

// Whether two records of a vocabulary (Task::vocabulary_record()) allow the same ids. For token files without a
// tokenizer only the number of ids is known, and is compared.
bool same_vocabulary(std::string_view a, std::string_view b);
// For messages: "300 tokens of the tokenizer with the checksum 1a2b3c4d".
std::string vocabulary_text(std::string_view record);

// Throws Error naming the first setting that the record has otherwise than the configuration, and both values. What the
// record does not name is not compared: older versions wrote none.
void check_same_model(const ModelRecord& record, const RunConfig& config, const Task& task);
// The same for Task::data_record(): a run goes on with the data that it began with, wherever that lies.
void check_same_data(const std::string& record, const Task& task);

}  // namespace tally
