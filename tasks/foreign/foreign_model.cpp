#include "tasks/foreign/foreign_model.hpp"

#include <algorithm>
#include <filesystem>

#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/utf8.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/foreign/weights.hpp"

namespace tally {
namespace {

constexpr JsonLimits limits{.max_depth = 16, .max_values = 200'000};

}  // namespace

void write_imported(const std::string& run, const ImportedRecord& record) {
  const JsonValue json = JsonValue::object({{"version", 1},
                                            {"positions", record.positions},
                                            {"ids", record.ids},
                                            {"ends", JsonValue::Array(record.ends.begin(), record.ends.end())},
                                            {"begin", record.begin ? JsonValue(*record.begin) : JsonValue()}});
  write_file_atomically(formatted("{}/{}", run, imported_file_name), write_json(json, 2) + "\n");
}

std::optional<ImportedRecord> read_imported(const std::string& run) {
  const std::string path = formatted("{}/{}", run, imported_file_name);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const JsonValue json = read_json(path, limits);
  return in_file(escape_for_print(path, 1000), [&] {
    const std::int64_t format = json.integer("version");
    check(format == 1, "import", "version {} is of a later tally; this one knows 1", format);
    ImportedRecord record{.positions = json.integer("positions"), .ends = json.at("ends").integers()};
    if (json.contains("ids")) record.ids = json.at("ids");
    if (!json.at("begin").is_null()) record.begin = json.integer("begin");
    return record;
  });
}

namespace {

constexpr std::string_view end_key = "eos_token_id", begin_key = "bos_token_id";

// The ids that end a text. generation_config.json comes first, as in transformers.
std::vector<std::int64_t> ends_of(ForeignSettings& settings, const JsonValue& generation, const std::string& folder,
                                  std::int64_t vocabulary) {
  const std::vector<std::int64_t> ends = settings.ids(end_key, vocabulary);
  if (generation.is_null()) return ends;
  ForeignSettings of_generation(generation, folder);
  return of_generation.has(end_key) ? of_generation.ids(end_key, vocabulary) : ends;
}

// The value of Task::max_length for such a run.
std::int64_t longest_of(const RunConfig& config) {
  OwnSettings settings(config, "a run");
  const std::int64_t positions = settings.integer("task.positions");
  return positions > 0 ? positions : settings.integer("task.length");
}

}  // namespace

ForeignDescription read_description(const std::string& folder, const IgnoredKeys& ignored) {
  const auto read = [&](const char* name) { return read_json(folder + name, foreign_config_limits, 1 << 20); };
  std::error_code error;
  const bool generates = std::filesystem::exists(folder + "/generation_config.json", error);
  return describe_foreign(read("/config.json"), folder + "/config.json",
                          generates ? read("/generation_config.json") : JsonValue(), ignored);
}

ForeignDescription describe_foreign(const JsonValue& json, const std::string& path, const JsonValue& generation,
                                    const IgnoredKeys& ignored) {
  ForeignSettings settings(json, escape_for_print(path, 1000), ignored);
  const std::string type = settings.text("model_type");
  std::vector<std::string> known;
  for (const Family* family : families()) {
    known.emplace_back(family->model_type);
    if (family->model_type != type) continue;
    ForeignDescription description{family, family->read(settings), {}, {}};
    ImportedRecord& record = description.record;
    const std::int64_t vocabulary = description.model.vocabulary;
    record.positions = description.model.positions;
    record.ends = ends_of(settings, generation, formatted("{}: generation_config.json", settings.source()), vocabulary);
    if (const auto begins = settings.ids(begin_key, vocabulary); !begins.empty()) record.begin = begins.front();
    settings.refuse_unread();
    for (const JsonMember& member : json.members()) {
      if (member.name.ends_with("_token_id")) record.ids.set(member.name, member.value);
    }
    description.notes = settings.notes();
    return description;
  }
  settings.refuse("model_type", "= '{}' is not read; there are {}", escape_for_print(type, 60), joined(known));
}

RunConfig config_of(const ForeignDescription& description, const std::string& pe) {
  constexpr std::int64_t comfortable_length = 1024;
  const ForeignModel& model = description.model;
  RunConfig config = RunConfig::make("text", pe.empty() ? model.encoding : pe);
  for (const EncodingChoice::Assignment& assignment : config.encoding.acting()) {
    const bool acts =
        std::ranges::any_of(assignment.sum, [&](const auto* entry) { return entry->name == model.encoding; });
    check(acts, "import", "--pe {} leaves out {}, which the model was trained with", pe, model.encoding);
  }
  for (const auto& [name, value] : model.settings) config.set(name, value);
  config.set("task.vocabulary", formatted("{}", model.vocabulary));
  config.set("task.length", formatted("{}", std::min(model.positions, comfortable_length)));
  if (model.learned_positions) config.set("task.positions", formatted("{}", model.positions));
  config.validate();
  return config;
}

ForeignLoaded load_foreign(const std::string& folder, const ForeignDescription& description, const RunConfig& config) {
  const ForeignWeights weights = ForeignWeights::open(folder);
  const ModelSetting setting{config.model, config.encoding, description.model.vocabulary, longest_of(config),
                             config.dtype()};
  const ForeignMapping mapping(
      weights, *description.family, config.model,
      parameter_shapes(setting.options, setting.encoding, setting.vocabulary, setting.max_length));
  check_fits(estimate_loading(setting));
  std::unique_ptr<SequenceModel> model =
      make_model(setting.options, setting.encoding, setting.vocabulary, setting.max_length,
                 static_cast<std::uint64_t>(config.run.seed), setting.dtype, default_device());
  mapping.load(model->parameters());
  return {std::move(model), mapping.not_in_file()};
}

namespace {

// Null, a single id, or an array.
JsonValue ids_json(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return {};
  return ids.size() == 1 ? JsonValue(ids.front()) : JsonValue(JsonValue::Array(ids.begin(), ids.end()));
}

}  // namespace

JsonValue foreign_config(const Family& family, const RunConfig& config, const Task& task,
                         const std::optional<ImportedRecord>& imported) {
  OwnSettings settings(config, family.name);
  const JsonValue own = family.write(settings);
  settings.refuse_unread();
  const std::int64_t positions = std::max(task.max_length(), imported ? imported->positions : 0);
  const std::vector<std::int32_t> end = task.beginning();
  std::vector<std::int64_t> ends(end.begin(), end.end());
  JsonValue ids = JsonValue::object({{std::string(begin_key), ids_json(ends)}});
  if (imported) {
    ids = imported->ids;
    // The text of the run may end with another token than the model's own texts. A tokenizer without a text has only
    // the empty training split.
    const bool has_text = task.splits().size() > 1;
    ends = imported->ends;
    if (has_text && !end.empty() && std::ranges::count(ends, end.front()) == 0) ends.push_back(end.front());
  }
  JsonValue json = JsonValue::object({{"architectures", JsonValue::Array{family.architecture}},
                                      {"model_type", family.model_type},
                                      {"torch_dtype", config.run.dtype == "f64" ? "float64" : "float32"},
                                      {"vocab_size", task.vocabulary().size()},
                                      {std::string(family.positions_key), positions}});
  for (const JsonValue* part : {&std::as_const(ids), &own}) {
    for (const JsonMember& member : part->members()) json.set(member.name, member.value);
  }
  return json.set(end_key, ids_json(ends));
}

}  // namespace tally
