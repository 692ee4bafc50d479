// tally convert: reads a model of another library (tasks/foreign/) as a run at step 0 of the task text, or writes the
// weights of a run, also in the format of another library.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <tuple>

#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "core/io/safetensors.hpp"
#include "core/version.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/data/task.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/foreign/weights.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/prepare/text_tokens.hpp"
#include "tasks/text/tokenizer.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

struct ConvertSettings {
  std::string source, target;
  std::string encoding;  // of a run to make
  IgnoredKeys ignored;
  bool force = false;
  std::string format, checkpoint = "newest", floats = "given";  // of a file or a folder to write
};

// Creates the new folder `partial` and calls fill(), which writes its files and moves it to its place. A folder at its
// place is therefore always complete. After an error the new folder is removed.
template <class Fill>
void write_folder(const std::string& partial, const Fill& fill) {
  std::error_code failure;
  fs::create_directories(fs::path(partial).parent_path(), failure);
  // The error path below removes the folder, so this process must be the one that made it.
  const bool made = fs::create_directory(partial, failure);
  check(made || !fs::exists(fs::symlink_status(partial)), "convert",
        "'{}' exists, from a conversion that was interrupted or is at work", printable(partial));
  check(made, "convert", "cannot make the folder '{}': {}", printable(partial), failure.message());
  try {
    fill();
  } catch (...) {
    std::error_code error;
    fs::remove_all(partial, error);
    throw;
  }
}

// The tokenizer of the folder; nothing if it has none.
std::optional<TokenizerParts> tokenizer_in(const std::string& folder) {
  const bool there = path_exists(folder + "/tokenizer.json") || path_exists(folder + "/vocab.json");
  return there ? std::optional(read_tokenizer(folder)) : std::nullopt;
}

// What its encoding depends on.
auto members_of(const TokenizerParts& parts) {
  return std::tie(parts.tokens, parts.merges, parts.specials, parts.added, parts.normal_forms, parts.steps,
                  parts.ignore_merges, parts.byte_tokens, parts.blanks);
}

// Chooses the tokenizer of the run. The folder's own comes first, and a named text must have the same one. Next is the
// text's. Otherwise it is bytes, which all commands can handle, whatever the model's tokens were. Token files with an
// unknown tokenizer get none: their ids are the model's.
std::optional<TokenizerParts> choose_tokenizer(const std::string& from, const std::string& data,
                                               const std::string& tokenizer, std::int64_t vocabulary,
                                               const CommonOptions& common) {
  const bool token_files = !data.empty() && !is_prepared_text(data);
  std::optional<TokenizerParts> own;
  try {
    if (!token_files || tokenizer.empty()) own = tokenizer_in(from);
  } catch (const Error& error) {
    check(!data.empty(), "convert",
          "the model's tokenizer is not read: {}; --data names token files with the model's ids, or a text that was "
          "prepared with the same tokenizer",
          error.what());
    say(common, formatted("the model's tokenizer is not read, so {}{}",
                          token_files ? formatted("what the ids of {} stand for is not known: ", printable(data))
                                      : formatted("that of {} is taken to be the same: ", printable(data)),
                          printable(error.what())));
  }
  if (token_files) return tokenizer.empty() ? std::move(own) : read_tokenizer(tokenizer);
  if (data.empty()) {
    if (own) return own;
    check(vocabulary > byte_count, "convert",
          "{}: holds no tokenizer (tokenizer.json, or vocab.json and merges.txt), and bytes are more than the {} "
          "tokens of the model; --data names token files with the model's ids, or a text that was prepared with the "
          "model's tokenizer",
          printable(from), vocabulary);
    say(common, formatted("{} holds no tokenizer: texts are read and written as bytes, the ids 0 to {}, which need not "
                          "be the model's",
                          printable(from), byte_count));
    return byte_tokenizer();
  }
  const TokenizerParts of_data = TextTokens({.data = data}).tokenizer()->parts();
  check(!own || members_of(*own) == members_of(of_data), "convert",
        "{}: was prepared with another tokenizer than that of {}", printable(data), printable(from));
  return of_data;
}

// The token that ends a text: the choice of `tally prepare`, or else the first end in config.json that the tokenizer
// has. Throws like end_token() for a name.
std::optional<std::int32_t> end_in(const TokenizerParts& parts, const std::string& name, const std::string& from,
                                   const std::vector<std::int64_t>& ends) {
  if (!name.empty()) return end_token(parts, name, from);
  if (const std::optional<std::int32_t> known = find_end_token(parts, from)) return known;
  const auto end = std::ranges::find_if(ends, [&](std::int64_t id) { return id < std::ssize(parts.tokens); });
  return end != ends.end() ? std::optional(static_cast<std::int32_t>(*end)) : std::nullopt;
}

// The value of the option end-token for this token.
std::string name_of(const TokenizerParts& parts, std::int32_t id) {
  const auto special = std::ranges::find(parts.specials, id, &SpecialToken::id);
  return special != parts.specials.end() ? special->name : std::to_string(id);
}

// Writes the tokenizer. With an end token it writes an empty prepared text, so that the run can read and write
// text.
void write_tokenizer(const std::string& folder, const TokenizerParts& parts, std::optional<std::int32_t> end) {
  const std::string text = tokenizer_json(parts);
  make_folder("convert", folder);
  write_file_atomically(folder + "/tokenizer.json", text);
  if (!end) return;
  const JsonValue tokenizer = JsonValue::object(
      {{"vocabulary", parts.tokens.size()}, {"end_of_text", *end}, {"checksum", checksum_text(crc32c(text))}});
  write_file_atomically(
      folder + "/manifest.json",
      write_json(JsonValue::object({{"version", 1}, {"splits", JsonValue::object()}, {"tokenizer", tokenizer}}), 2) +
          "\n");
}

void write_run(const ConvertSettings& settings, RunConfig config, const SequenceModel& model,
               const std::optional<TokenizerParts>& tokenizer, const ImportedRecord& record) {
  const std::string run = without_slashes(settings.target), partial = run + ".partial";
  OwnSettings settings_of_run(config, "a run");
  const std::string data = settings_of_run.text("task.data");
  const bool token_files = !data.empty() && !is_prepared_text(data);
  const bool own_tokenizer =
      data.empty() || (token_files && tokenizer && settings_of_run.text("task.tokenizer").empty());
  std::optional<std::int32_t> end;
  if (own_tokenizer) {
    const std::string name = settings_of_run.text("task.end-token");
    if (data.empty() || name.empty()) end = end_in(*tokenizer, name, settings.source, record.ends);
    if (data.empty()) {
      if (!end) end = end_token(*tokenizer, name, settings.source);  // throws
      config.set("task.data", partial + "/tokenizer");
      config.set("task.end-token", "");  // it is in the manifest
    } else {
      config.set("task.tokenizer", partial + "/tokenizer/tokenizer.json");
      // Only the model's folder names this token.
      if (end && end != tokenizer->end_of_text()) config.set("task.end-token", name_of(*tokenizer, *end));
    }
  }
  write_folder(partial, [&] {
    const RunFolder folder = RunFolder::create(partial, config, false, true);
    if (own_tokenizer) write_tokenizer(partial + "/tokenizer", *tokenizer, data.empty() ? end : std::nullopt);
    write_imported(partial, record);
    const std::unique_ptr<Task> task = config.make_task();
    folder.check_can_write_checkpoints(0, 0);
    folder.write_checkpoint({0, 0, 0, model_record(config, *task)}, model.parameters(), {});
    const FileDescriptor lock_of_old = RunFolder::make_way(run, settings.force);
    move_path("convert", partial, run);
  });
}

Result convert_to_run(const ConvertSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  if (settings.target.empty()) throw UsageError("[usage] the name of the run folder is empty");
  if (!settings.force) RunFolder::make_way(settings.target, false);
  const ForeignDescription description = read_description(settings.source, settings.ignored);
  for (const std::string& note : description.notes) say(common, formatted("note: {}", printable(note)));
  RunConfig config = as_usage([&] { return config_of(description, settings.encoding); });
  options.apply(config);
  as_usage([&] { config.validate(); });
  OwnSettings own(config, "a run");
  const std::optional<TokenizerParts> tokenizer = choose_tokenizer(
      settings.source, own.text("task.data"), own.text("task.tokenizer"), description.model.vocabulary, common);
  check(!tokenizer || std::ssize(tokenizer->tokens) <= description.model.vocabulary, "convert",
        "{}: the tokenizer has {} tokens, and the model (vocab_size) {}", printable(settings.source),
        tokenizer ? tokenizer->tokens.size() : 0, description.model.vocabulary);
  const ForeignLoaded loaded = load_foreign(settings.source, description, config);
  write_run(settings, config.clone(), *loaded.model, tokenizer, description.record);
  JsonValue started = JsonValue::array();
  for (const std::string& name : loaded.not_in_file) started.push(name);
  if (tokenizer) {
    for (const std::string& note : tokenizer->notes) say(common, formatted("tokenizer: {}", printable(note)));
  }
  return {.value = JsonValue::object({{"run", settings.target},
                                      {"family", description.family->name},
                                      {"pe", config.encoding.text()},
                                      {"parameters", loaded.model->parameter_count()},
                                      {"vocabulary", description.model.vocabulary},
                                      {"not_in_file", std::move(started)}}),
          .notice = true};
}

FloatsAs floats_of(const ConvertSettings& settings) {
  if (settings.floats == "given") return FloatsAs::given;
  return settings.floats == "f16" ? FloatsAs::f16 : FloatsAs::bf16;
}

Result result_of(const ConvertSettings& settings, const TrainedModel& trained, std::size_t tensors) {
  return {.value = JsonValue::object({{"out", settings.target},
                                      {"step", trained.step},
                                      {"tensors", tensors},
                                      {"parameters", trained.model->parameter_count()}}),
          .notice = true};
}

Result convert_to_weights(const ConvertSettings& settings) {
  check_output(settings.target);
  const TrainedModel trained = load_trained(settings.source, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  const NamedTensors tensors = with_prefix("model.", trained.model->parameters());
  Metadata metadata{{"format", "tally weights"},
                    {"config", write_json(config.to_json())},
                    {"step", std::to_string(trained.step)},
                    {"version", std::string(version)}};
  add_checksums(metadata, tensors);
  write_safetensors(settings.target, tensors, metadata);
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

Result convert_to_folder(const ConvertSettings& settings) {
  const Family& family = as_usage([&]() -> const Family& { return find_family(settings.format); });
  const std::string out = without_slashes(settings.target), partial = out + ".partial";
  for (const std::string& path : {out, partial}) {
    std::error_code error;
    const bool empty = path == out && fs::is_directory(out, error) && fs::is_empty(out, error);
    check(empty || !fs::exists(fs::symlink_status(path)), "convert", "'{}' is there already", printable(path));
  }
  const TrainedModel trained = load_trained(settings.source, settings.checkpoint);
  const RunConfig& config = trained.folder.config();
  const std::optional<ImportedRecord> imported = read_imported(settings.source);
  JsonValue json = foreign_config(family, config, *trained.task, imported);
  const FloatsAs floats = floats_of(settings);
  if (floats != FloatsAs::given) json.set("torch_dtype", floats == FloatsAs::f16 ? "float16" : "bfloat16");
  const NamedTensors tensors = foreign_tensors(family, config.model, trained.model->parameters());
  write_folder(partial, [&] {
    const Metadata metadata{{"format", "pt"}};  // the readers of this format require it
    write_safetensors(partial + "/model.safetensors", tensors, metadata, floats);
    const auto* text = dynamic_cast<const SpecialTokens*>(trained.task.get());
    if (text != nullptr && text->tokenizer() != nullptr) {
      const TokenizerParts& parts = text->tokenizer()->parts();
      write_file_atomically(partial + "/tokenizer.json", tokenizer_json(parts));
      write_file_atomically(partial + "/tokenizer_config.json", tokenizer_config_of(json, parts));
    }
    write_file_atomically(partial + "/config.json", write_json(json, 2) + "\n");
    move_path("convert", partial, out);
  });
  return result_of(settings, trained, tensors.size());
}

bool is_run(const std::string& folder) {
  return path_exists(folder + "/checkpoints") || path_exists(folder + "/metrics.jsonl");
}

}  // namespace

std::function<Result()> declare_convert(CommandLine& line) {
  const auto settings = std::make_shared<ConvertSettings>();
  std::string source = line.look_ahead_folder();
  if (source.empty() && !line.words().empty() && !line.words()[0].starts_with('-')) source = line.words()[0];
  const bool from_run = is_run(source), to_run = !from_run && !source.empty();
  line.add("SOURCE", &settings->source,
           "folder of a run; or of a model of another library (GPT-2, LLaMA, Qwen2, GPT-NeoX), with config.json, "
           "model.safetensors or its shards, and a tokenizer if there is one. 'tally convert FOLDER --help' lists the "
           "options of a run of that model: data, length, encoding, optimiser",
           {.required = true});
  line.add("TARGET", &settings->target,
           "for a run: safetensors file of its weights, or with --as a folder; for another model: folder of the new "
           "run",
           {.required = true});
  if (!to_run) {
    const std::string group = "From a run";
    line.add("--as", &settings->format,
             "gpt2, llama, neox or qwen2: config.json and model.safetensors as transformers reads them",
             {.group = group});
    line.add("--floats", &settings->floats, "keep the weights' type, or round them to 16 bits",
             {.group = group, .allowed = {"given", "f16", "bf16"}, .needs = {"--as"}});
    line.add("--checkpoint", &settings->checkpoint, checkpoint_help, {.group = group});
  }
  if (!from_run) {
    const Rules of_model{.group = "From a model of another library"};
    line.add("--pe", &settings->encoding,
             "the model's own encoding in a combination, such as rope+cope; the other parts are initialised", of_model);
    line.add("--ignore-key", &settings->ignored,
             "a key of config.json to ignore, because it does not change the model; quantization.note is a key in an "
             "object; may be repeated",
             of_model);
    line.add("--force", &settings->force, "move an existing folder aside", of_model);
  }
  auto options = std::make_shared<ConfigOptions>();
  if (to_run) {
    const ForeignDescription description = read_description(source, line.look_ahead_all("--ignore-key"));
    const RunConfig config = as_usage([&] { return config_of(description, line.look_ahead("--pe")); });
    const std::string own = formatted("pe.{}.", description.model.encoding);
    // Options that the file fixes are not declared.
    options = ConfigOptions::declare_for(line, config, [own](std::string_view name) {
      const bool is_fixed =
          name.starts_with("model.") && name != "model.dropout" && name != "model.attention" && name != "model.init";
      return !is_fixed && !name.starts_with(own) && name != "task.vocabulary" && name != "task.positions";
    });
  }
  return [settings, options, from_run, &common = line.common] {
    if (!from_run) return convert_to_run(*settings, *options, common);
    return settings->format.empty() ? convert_to_weights(*settings) : convert_to_folder(*settings);
  };
}

}  // namespace tally
