// Fields of an imported model's files that are not part of the model: ids of tokens, idle keys of config.json, and
// generation_config.json. RUN/imported.json holds them, so that an export writes them again and generation stops where
// the model's own library stops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"

namespace tally {

inline constexpr std::string_view imported_file_name = "imported.json";

struct ImportedRecord {
  std::string family;          // "llama"
  std::int64_t positions = 0;  // as in config.json
  JsonValue config;            // its idle members (ForeignSettings::idle_members)
  JsonValue generation;        // generation_config.json; null if there was none
  std::vector<std::int64_t> ends =
      {};  // ids that end a text: eos_token_id of generation_config.json, or of config.json
  std::optional<std::int64_t> begin = {};  // id that a text begins with: bos_token_id of config.json
};

void write_imported(const std::string& run, const ImportedRecord& record);
// Nothing if the run was not imported, or if the version that imported it kept no record. Throws Error naming the file.
std::optional<ImportedRecord> read_imported(const std::string& run);

}  // namespace tally
