// tally import: a model of another library (tasks/foreign/) as a run at step 0 of the task text.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/prepare/end_token.hpp"
#include "tasks/text/prepare/prepared_text.hpp"
#include "tasks/text/prepare/text_tokens.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

struct ImportSettings {
  std::string run, from, encoding;
  IgnoredKeys ignored;
  bool force = false;
};

// The tokenizer of the folder; nothing if it has none.
std::optional<TokenizerParts> tokenizer_in(const std::string& folder) {
  std::error_code error;
  const bool there = fs::exists(folder + "/tokenizer.json", error) || fs::exists(folder + "/vocab.json", error);
  return there ? std::optional(read_tokenizer(folder)) : std::nullopt;
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
    check(!data.empty(), "import",
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
    check(vocabulary > byte_count, "import",
          "{}: holds no tokenizer (tokenizer.json, or vocab.json and merges.txt), and bytes are more than the {} "
          "tokens of the model; --data names token files with the model's ids, or a text that was prepared with the "
          "model's tokenizer",
          printable(from), vocabulary);
    say(common, formatted("{} holds no tokenizer: texts are read and written as bytes, the ids 0 to {}, which need not "
                          "be the model's",
                          printable(from), byte_count));
    return byte_tokenizer();
  }
  const PreparedText prepared(data);
  TokenizerParts of_data = read_tokenizer(prepared.tokenizer_path());
  check(!own || tokenizer_json(*own) == tokenizer_json(of_data), "import",
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
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "import", "cannot make the folder '{}': {}", folder, error.message());
  write_file_atomically(folder + "/tokenizer.json", text);
  if (!end) return;
  const JsonValue tokenizer = JsonValue::object({{"vocabulary", parts.tokens.size()},
                                                 {"end_of_text", *end},
                                                 {"checksum", checksum_text(crc32c(std::as_bytes(std::span(text))))}});
  write_file_atomically(
      folder + "/manifest.json",
      write_json(JsonValue::object({{"version", 1}, {"splits", JsonValue::object()}, {"tokenizer", tokenizer}}), 2) +
          "\n");
}

// Writes under another name first, so that an existing run is always complete.
void write_run(const ImportSettings& settings, RunConfig config, const SequenceModel& model,
               const std::optional<TokenizerParts>& tokenizer, const ImportedRecord& record) {
  std::string run = settings.run;
  while (run.size() > 1 && run.ends_with('/')) run.pop_back();
  const std::string partial = run + ".partial";
  OwnSettings settings_of_run(config, "a run");
  const std::string data = settings_of_run.text("task.data");
  const bool token_files = !data.empty() && !is_prepared_text(data);
  const bool own_tokenizer =
      data.empty() || (token_files && tokenizer && settings_of_run.text("task.tokenizer").empty());
  std::optional<std::int32_t> end;
  if (own_tokenizer) {
    const std::string name = settings_of_run.text("task.end-token");
    if (data.empty() || name.empty()) end = end_in(*tokenizer, name, settings.from, record.ends);
    if (data.empty()) {
      if (!end) end = end_token(*tokenizer, name, settings.from);  // throws
      config.set("task.data", partial + "/tokenizer");
      config.set("task.end-token", "");  // it is in the manifest
    } else {
      config.set("task.tokenizer", partial + "/tokenizer/tokenizer.json");
      // Only the model's folder names this token.
      if (end && end != tokenizer->end_of_text()) config.set("task.end-token", name_of(*tokenizer, *end));
    }
  }
  std::error_code failure;
  fs::create_directories(fs::path(partial).parent_path(), failure);
  // The error path below removes the folder, so this process must be the one that made it.
  const bool made = fs::create_directory(partial, failure);
  check(made || !fs::exists(fs::symlink_status(partial)), "import",
        "'{}' is there, of an import that was interrupted or is at work", printable(partial));
  check(made, "import", "cannot make the folder '{}': {}", printable(partial), failure.message());
  try {
    const RunFolder folder = RunFolder::create(partial, config, false, true);
    if (own_tokenizer) {
      write_tokenizer(partial + "/tokenizer", *tokenizer, data.empty() ? end : std::nullopt);
    }
    write_imported(partial, record);
    const std::unique_ptr<Task> task = config.make_task();
    folder.check_can_write_checkpoints(0, 0);
    folder.write_checkpoint({0, 0, 0, model_record(config, *task)}, model.parameters(), {});
    const FileDescriptor lock_of_old = RunFolder::make_way(run, settings.force);
    std::error_code error;
    fs::rename(partial, run, error);
    check(!error, "import", "cannot move '{}' to '{}': {}", partial, run, error.message());
  } catch (...) {
    std::error_code error;
    fs::remove_all(partial, error);
    throw;
  }
}

Result run_import(const ImportSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  if (settings.run.empty()) throw UsageError("[usage] the name of the run folder is empty");
  if (!settings.force) RunFolder::make_way(settings.run, false);
  const ForeignDescription description = read_description(settings.from, settings.ignored);
  for (const std::string& note : description.notes) say(common, formatted("note: {}", printable(note)));
  RunConfig config = as_usage([&] { return config_of(description, settings.encoding); });
  options.apply(config);
  as_usage([&] { config.validate(); });
  OwnSettings own(config, "a run");
  const std::optional<TokenizerParts> tokenizer = choose_tokenizer(
      settings.from, own.text("task.data"), own.text("task.tokenizer"), description.model.vocabulary, common);
  check(!tokenizer || std::ssize(tokenizer->tokens) <= description.model.vocabulary, "import",
        "{}: the tokenizer has {} tokens, and the model (vocab_size) {}", printable(settings.from),
        tokenizer ? tokenizer->tokens.size() : 0, description.model.vocabulary);
  const ForeignLoaded loaded = load_foreign(settings.from, description, config);
  write_run(settings, config.clone(), *loaded.model, tokenizer, description.record);
  for (const std::string& part : loaded.left_out) {
    say(common, formatted("names of tensors in the file contain '{}', which is left out", printable(part)));
  }
  JsonValue started = JsonValue::array();
  for (const std::string& name : loaded.not_in_file) started.push(name);
  if (tokenizer) {
    for (const std::string& note : tokenizer->notes) say(common, formatted("tokenizer: {}", printable(note)));
  }
  return {.value = JsonValue::object({{"run", settings.run},
                                      {"family", description.family->name},
                                      {"pe", config.encoding.text()},
                                      {"parameters", loaded.model->parameter_count()},
                                      {"vocabulary", description.model.vocabulary},
                                      {"not_in_file", std::move(started)}}),
          .text = formatted("{} model with {} parameters and a vocabulary of {}, encoding {}\n{}run: {}, at step 0\n",
                            description.family->name, with_commas(loaded.model->parameter_count()),
                            with_commas(description.model.vocabulary), config.encoding.text(),
                            loaded.not_in_file.empty() ? ""
                                                       : formatted("not in the file, with their start values: {}\n",
                                                                   joined(loaded.not_in_file)),
                            printable(settings.run)),
          .notice = true};
}

}  // namespace

std::function<Result()> declare_import(CommandLine& line) {
  const auto settings = std::make_shared<ImportSettings>();
  line.add("RUN", &settings->run, "folder of the run to make", {.required = true});
  line.add("--from", &settings->from,
           "folder with config.json, model.safetensors or its shards, and a tokenizer if there is one: GPT-2, LLaMA, "
           "Qwen2, GPT-NeoX; --from FOLDER --help shows what else can be said of its model: data, length, encoding, "
           "optimiser",
           {.required = true});
  line.add("--pe", &settings->encoding,
           "the model's own encoding in a sum with others, as in rope+cope; what the file lacks has its start values");
  line.add("--ignore-key", &settings->ignored,
           "a key of config.json that tally does not know and that changes nothing of what the model computes, as "
           "quantization.note within an object; may be given again");
  line.add("--force", &settings->force, "move what the folder holds aside");
  auto options = std::make_shared<ConfigOptions>();
  if (const std::string from = line.look_ahead("--from"); !from.empty()) {
    const ForeignDescription description = read_description(from, line.look_ahead_all("--ignore-key"));
    const RunConfig config = as_usage([&] { return config_of(description, line.look_ahead("--pe")); });
    const std::string own = formatted("pe.{}.", description.model.encoding);
    // Options that the file fixes are not declared.
    options = ConfigOptions::declare_for(line, config, [own](std::string_view name) {
      const bool of_model =
          name.starts_with("model.") && name != "model.dropout" && name != "model.attention" && name != "model.init";
      return !of_model && !name.starts_with(own) && name != "task.vocabulary" && name != "task.positions";
    });
  }
  return [settings, options, &common = line.common] { return run_import(*settings, *options, common); };
}

}  // namespace tally
