#include "tasks/foreign/imported_record.hpp"

#include <filesystem>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr JsonLimits limits{.max_depth = 16, .max_values = 200'000};

}  // namespace

void write_imported(const std::string& run, const ImportedRecord& record) {
  JsonValue ends = JsonValue::array();
  for (const std::int64_t id : record.ends) ends.push(id);
  JsonValue json = JsonValue::object({{"version", 1},
                                      {"family", record.family},
                                      {"positions", record.positions},
                                      {"ends", std::move(ends)},
                                      {"begin", record.begin ? JsonValue(*record.begin) : JsonValue()},
                                      {"config", record.config},
                                      {"generation_config", record.generation}});
  write_file_atomically(formatted("{}/{}", run, imported_file_name), write_json(json, 2) + "\n");
}

std::optional<ImportedRecord> read_imported(const std::string& run) {
  const std::string path = formatted("{}/{}", run, imported_file_name);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const JsonValue json = read_json(path, limits);
  try {
    const std::int64_t format = json.integer("version");
    check(format == 1, "import", "version {} is of a later tally; this one knows 1", format);
    ImportedRecord record{.family = json.string("family"),
                          .positions = json.integer("positions"),
                          .config = json.at("config"),
                          .generation = json.at("generation_config"),
                          .ends = json.at("ends").integers()};
    if (!json.at("begin").is_null()) record.begin = json.integer("begin");
    check(record.config.is_object(), "import", "'config' must be an object, not {}", record.config.kind());
    return record;
  } catch (const Error& problem) {
    fail("import", "{}: {}", escape_for_print(path, 1000), problem.what());
  }
}

}  // namespace tally
