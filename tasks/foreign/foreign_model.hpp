// From a folder of another library to a run of the task `text` at step 0, and back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/json.hpp"
#include "tasks/config.hpp"
#include "tasks/foreign/family.hpp"
#include "tasks/task.hpp"

namespace tally {

// What stands in folder/config.json.
struct ForeignDescription {
  const Family* family = nullptr;
  ForeignModel model;
  std::optional<std::int64_t> end_of_text;  // eos_token_id
};
// Throws Error naming file and key.
ForeignDescription read_description(const std::string& folder);
// The same of what config.json holds.
ForeignDescription describe_foreign(const JsonValue& config, const std::string& path);
inline constexpr JsonLimits foreign_config_limits{.max_depth = 8, .max_values = 100'000};

// The configuration of a run: the model's settings, and for the rest what RunConfig::make gives. pe: its encoding if
// empty, else one in which it acts on every head of every layer. The data are not chosen yet.
RunConfig config_of(const ForeignDescription& description, const std::string& pe);

struct ForeignLoaded {
  std::unique_ptr<SequenceModel> model;
  std::vector<std::string> not_in_file;  // parameters that have the start values of the run's seed
};
// The model of this configuration with the folder's weights. Throws Error naming file and tensor before memory is
// taken, DoesNotFit where there is not as much.
ForeignLoaded load_foreign(const std::string& folder, const ForeignDescription& description, const RunConfig& config);

// config.json of a model in the format; the vocabulary and the longest sequence are the task's. Throws Error naming
// what the format cannot say.
JsonValue foreign_config(const Family& family, const RunConfig& config, const Task& task);

}  // namespace tally
