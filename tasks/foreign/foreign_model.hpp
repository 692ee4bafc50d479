// Converts a folder of another library to a run of the task `text` at step 0, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"
#include "tasks/foreign/family.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// Fields of an imported model's files that are not part of the model. RUN/imported.json holds them, so that an export
// writes them again and generation stops where the model's own library stops.

inline constexpr std::string_view imported_file_name = "imported.json";

struct ImportedRecord {
  std::int64_t positions = 0;           // as in config.json
  JsonValue ids = JsonValue::object();  // its members "..._token_id"
  std::vector<std::int64_t> ends =
      {};  // ids that end a text: eos_token_id of generation_config.json, or of config.json
  std::optional<std::int64_t> begin = {};  // id that a text begins with: bos_token_id of config.json
};

void write_imported(const std::string& run, const ImportedRecord& record);
// Nothing if the run was not imported, or if the version that imported it kept no record. Throws Error naming the file.
std::optional<ImportedRecord> read_imported(const std::string& run);

// The contents of folder/config.json and folder/generation_config.json.
struct ForeignDescription {
  const Family* family = nullptr;
  ForeignModel model;
  ImportedRecord record;           // fields that are not part of the model
  std::vector<std::string> notes;  // for the user: assumptions, and fields that other readers read differently
};
// Throws Error naming file and key. ignored: unknown keys of config.json that have no effect.
ForeignDescription read_description(const std::string& folder, const IgnoredKeys& ignored = {});
// The same from parsed files; generation is null without generation_config.json.
ForeignDescription describe_foreign(const JsonValue& config, const std::string& path, const JsonValue& generation = {},
                                    const IgnoredKeys& ignored = {});
inline constexpr JsonLimits foreign_config_limits{.max_depth = 8, .max_values = 100'000};

// The configuration of a run: the model's settings, and the defaults of RunConfig::make for the rest. pe: if not empty,
// it must apply the model's encoding in every head of every layer. The data are not chosen yet.
RunConfig config_of(const ForeignDescription& description, const std::string& pe);

struct ForeignLoaded {
  std::unique_ptr<SequenceModel> model;
  std::vector<std::string> not_in_file;  // parameters that keep the initial values of the run's seed
};
// The model of this configuration with the folder's weights. Before it allocates memory, it throws Error naming file
// and tensor, or DoesNotFit if memory does not suffice.
ForeignLoaded load_foreign(const std::string& folder, const ForeignDescription& description, const RunConfig& config);

// config.json of a model in the format, with the vocabulary and the tokens of the task. The token ids of an imported
// run are written again, and the number of positions is at least the imported one. Throws Error naming the option that
// the format cannot express.
JsonValue foreign_config(const Family& family, const RunConfig& config, const Task& task,
                         const std::optional<ImportedRecord>& imported = {});

}  // namespace tally
