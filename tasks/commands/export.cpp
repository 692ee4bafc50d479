// tally export: writes only the weights of a run and their configuration, or the model in the format of another library
// (tasks/foreign/).
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/io/atomic_file.hpp"
#include "core/io/safetensors.hpp"
#include "core/version.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/foreign/weights.hpp"
#include "tasks/language/special_tokens.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

struct ExportSettings {
  std::string run, out, format, checkpoint = "newest", floats = "given";
};

FloatsAs floats_of(const ExportSettings& settings) {
  if (settings.floats == "given") return FloatsAs::given;
  return settings.floats == "f16" ? FloatsAs::f16 : FloatsAs::bf16;
}

Result result_of(const ExportSettings& settings, const TrainedModel& trained, std::size_t tensors) {
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"step", trained.step},
                                      {"tensors", tensors},
                                      {"parameters", trained.model->parameter_count()}}),
          .notice = true};
}

Result export_weights(const ExportSettings& settings) {
  check_output(settings.out);
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  const NamedTensors tensors = with_prefix("model.", trained.model->parameters());
  Metadata metadata{{"format", "tally weights"},
                    {"config", write_json(config.to_json())},
                    {"step", std::to_string(trained.step)},
                    {"version", std::string(version)}};
  add_checksums(metadata, tensors);
  write_safetensors(settings.out, tensors, metadata);
  return result_of(settings, trained, tensors.size());
}

// tokenizer_config.json with the first and last token and the longest text of config.json. If there are several last
// tokens, it names the first that is a special token of the tokenizer.
std::string tokenizer_config_of(const JsonValue& config, const TokenizerParts& parts) {
  const auto number = [&](const char* name) -> std::optional<std::int64_t> {
    const JsonValue* value = config.find(name);
    if (value == nullptr || !value->is_array()) {
      return value != nullptr && value->is_integer() ? std::optional(value->integer()) : std::nullopt;
    }
    for (const std::int64_t id : value->integers()) {
      if (std::ranges::count(parts.specials, id, &SpecialToken::id) > 0) return id;
    }
    return std::nullopt;
  };
  const std::int64_t length = number("n_positions").value_or(number("max_position_embeddings").value_or(0));
  return tokenizer_config_json(parts, number("bos_token_id"), number("eos_token_id"), length);
}

// Writes under another name first, so that an existing folder is always complete.
Result export_folder(const ExportSettings& settings, const CommonOptions& common) {
  const Family& family = as_usage([&]() -> const Family& { return find_family(settings.format); });
  std::string out = settings.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const std::string partial = out + ".partial";
  for (const std::string& path : {out, partial}) {
    std::error_code error;
    const bool empty = path == out && fs::is_directory(out, error) && fs::is_empty(out, error);
    check(empty || !fs::exists(fs::symlink_status(path)), "export", "'{}' is there already", printable(path));
  }
  const TrainedModel trained = load_trained(settings.run, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  const std::optional<ImportedRecord> imported = read_imported(settings.run);
  ForeignConfig written = foreign_config(family, config, *trained.task, imported);
  for (const std::string& note : written.notes) say(common, formatted("note: {}", printable(note)));
  JsonValue& json = written.json;
  const FloatsAs floats = floats_of(settings);
  if (floats != FloatsAs::given) json.set("torch_dtype", floats == FloatsAs::f16 ? "float16" : "bfloat16");
  const NamedTensors tensors = foreign_tensors(family, config.model, trained.model->parameters());
  std::error_code failure;
  fs::create_directories(fs::path(partial).parent_path(), failure);
  // The error path below removes the folder, so this process must be the one that made it.
  check(fs::create_directory(partial, failure), "export", "cannot make the folder '{}': {}", printable(partial),
        failure ? failure.message() : "another process has just made it");
  try {
    std::error_code error;
    const Metadata metadata{{"format", "pt"}};  // the readers of this format require it
    write_safetensors(partial + "/model.safetensors", tensors, metadata, floats);
    const auto* text = dynamic_cast<const SpecialTokens*>(trained.task.get());
    if (text != nullptr && text->tokenizer() != nullptr) {
      const TokenizerParts& parts = text->tokenizer()->parts();
      write_file_atomically(partial + "/tokenizer.json", tokenizer_json(parts));
      write_file_atomically(partial + "/tokenizer_config.json", tokenizer_config_of(json, parts));
      // Without this, the loaders of the other families add no token.
      const bool begins = imported && imported->family == "llama" && imported->begin;
      if (begins) {
        say(common, formatted("note: the exported tokenizer puts no token in front of a text; a llama model's own "
                              "tokenizer usually puts bos_token_id ({}) there",
                              *imported->begin));
      }
    }
    write_file_atomically(partial + "/config.json", write_json(json, 2) + "\n");
    if (!written.generation.is_null())
      write_file_atomically(partial + "/generation_config.json", write_json(written.generation, 2) + "\n");
    fs::rename(partial, out, error);
    check(!error, "export", "cannot move '{}' to '{}': {}", printable(partial), printable(out), error.message());
  } catch (...) {
    std::error_code error;
    fs::remove_all(partial, error);
    throw;
  }
  return result_of(settings, trained, tensors.size());
}

}  // namespace

std::function<Result()> declare_export(CommandLine& line) {
  const auto settings = std::make_shared<ExportSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--out", &settings->out, "safetensors file to write; with --as a folder", {.required = true});
  line.add("--as", &settings->format,
           "gpt2, llama, neox or qwen2: config.json and model.safetensors as transformers reads them");
  line.add("--floats", &settings->floats, "with --as: the weights as they are, or rounded to two bytes each",
           {.allowed = {"given", "f16", "bf16"}});
  line.add("--checkpoint", &settings->checkpoint, checkpoint_help);
  return [settings, &common = line.common] {
    if (settings->format.empty() && settings->floats != "given") {
      throw UsageError(
          "[export] --floats is for models of other libraries (--as): a run's own weights stay as they are");
    }
    return settings->format.empty() ? export_weights(*settings) : export_folder(*settings, common);
  };
}

}  // namespace tally
