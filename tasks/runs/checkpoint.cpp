#include "tasks/runs/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "core/version.hpp"

namespace tally {

std::map<std::string, std::string> settings_of(const RunConfig& config) {
  std::map<std::string, std::string> settings;
  for (const RunConfig::Group& group : config.groups()) {
    for (const OptionInfo& option : group.options) settings[group.prefix + option.name] = to_text(option.value);
  }
  settings.erase("seed");
  return settings;
}

ModelRecord model_record(const RunConfig& config, const Task& task) {
  ModelRecord record = settings_of(config);
  std::erase_if(record, [](const auto& setting) {
    const std::string& name = setting.first;
    const bool of_no_effect = name == "model.dropout" || name == "model.init" || name == "model.attention";
    return of_no_effect || !(name.starts_with("model.") || name.starts_with("pe."));
  });
  record.insert({{"task", config.task->name},
                 {"pe", config.encoding.text()},
                 {"dtype", config.run.dtype},
                 {"vocabulary", task.vocabulary_record()}});
  return record;
}

std::string model_record_text(const ModelRecord& record) {
  JsonValue json = JsonValue::object();
  for (const auto& [name, value] : record) json.set(name, value);
  return write_json(json);
}

ModelRecord model_record_from_text(const std::string& text, const std::string& source) {
  const JsonValue json = parse_json(text, {.max_depth = 2, .max_values = 10'000}, source);
  return in_file(source, [&] {
    check(json.is_object(), "model", "must be an object, not {}", json.kind());
    ModelRecord record;
    for (const JsonMember& member : json.members()) record[member.name] = json.string(member.name);
    return record;
  });
}

namespace {

// "300 tokens, 1a2b3c4d" for a text; other tasks record their symbols.
struct TokenCount {
  std::string_view count, checksum;  // checksum: of the tokenizer; empty if only ids are known
};
std::optional<TokenCount> token_count(std::string_view record) {
  constexpr std::string_view unit = " tokens";
  const std::size_t end = record.find(unit);
  const bool counts = end != record.npos && end > 0 && record.find_first_not_of("0123456789") == end;
  if (!counts) return std::nullopt;
  const std::string_view rest = record.substr(end + unit.size());
  if (!rest.empty() && !rest.starts_with(", ")) return std::nullopt;
  return TokenCount{record.substr(0, end), rest.substr(std::min<std::size_t>(2, rest.size()))};
}

}  // namespace

bool same_vocabulary(std::string_view a, std::string_view b) {
  const std::optional<TokenCount> first = token_count(a), second = token_count(b);
  if (!first || !second) return a == b;
  const bool known = !first->checksum.empty() && !second->checksum.empty();
  return first->count == second->count && (!known || first->checksum == second->checksum);
}

std::string vocabulary_text(std::string_view record) {
  const std::optional<TokenCount> counted = token_count(record);
  if (!counted) return formatted("the symbols {}", record);
  return formatted("{} tokens {}", counted->count,
                   counted->checksum.empty() ? "without a tokenizer"
                                             : formatted("of the tokenizer with the checksum {}", counted->checksum));
}

void check_same_model(const ModelRecord& record, const RunConfig& config, const Task& task) {
  const ModelRecord own = model_record(config, task);
  const auto compare = [&](const std::string& name, const std::string& recorded) {
    const auto now = own.find(name);
    check(now != own.end(), "model", "it was made with {} {}, which the configuration has not", name, recorded);
    if (name == "vocabulary") {
      check(same_vocabulary(now->second, recorded), "model",
            "the vocabulary differs: the model was made with {}, and the configuration has {}; its data must be made "
            "with the tokenizer of the model",
            vocabulary_text(recorded), vocabulary_text(now->second));
      return;
    }
    check(now->second == recorded, "model", "it was made with {} {}, the configuration has {}", name, recorded,
          now->second);
  };
  // Another task or encoding changes all of its settings, so these are compared first.
  for (const char* first : {"task", "pe"}) {
    if (const auto recorded = record.find(first); recorded != record.end()) compare(first, recorded->second);
  }
  for (const auto& [name, recorded] : record) compare(name, recorded);
}

void check_same_data(const std::string& record, const Task& task) {
  check(record.empty() || record == task.data_record(), "data", "it was trained on other data: {}; now there is {}",
        escape_for_print(record, 1000), escape_for_print(task.data_record(), 1000));
}

namespace {

// A number from the metadata of a checkpoint.
std::int64_t metadata_number(const SafetensorsFile& file, const std::string& key) {
  const auto entry = file.metadata().find(key);
  check(entry != file.metadata().end(), "checkpoint", "{}: the metadata has no '{}'", file.path(), key);
  std::int64_t value = -1;
  const char* const end = entry->second.data() + entry->second.size();
  const auto read = std::from_chars(entry->second.data(), end, value);
  check(read.ec == std::errc() && read.ptr == end && value >= 0, "checkpoint", "{}: '{}' is not a number", file.path(),
        key);
  return value;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char name[48];
  std::snprintf(name, sizeof name, "step-%08lld.safetensors", static_cast<long long>(step));
  return name;
}

std::int64_t step_of_checkpoint(const std::string& name) {
  std::int64_t step = -1;
  constexpr std::string_view head = "step-";
  if (name.starts_with(head)) std::from_chars(name.data() + head.size(), name.data() + name.size(), step);
  return step >= 0 && name == checkpoint_name(step) ? step : -1;
}

NamedTensors with_prefix(const std::string& prefix, const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(prefix + name, tensor);
  return result;
}

void write_checkpoint_file(const std::string& path, const Checkpoint& checkpoint, const NamedTensors& model,
                           const NamedTensors& optimiser) {
  NamedTensors tensors = with_prefix("model.", model);
  for (auto& entry : with_prefix("optimiser.", optimiser)) tensors.push_back(std::move(entry));
  Metadata metadata{{"format", "tally checkpoint"},
                    {"step", std::to_string(checkpoint.step)},
                    {"tokens", std::to_string(checkpoint.tokens)},
                    {"sequences", std::to_string(checkpoint.sequences)},
                    {"version", std::string(version)}};
  if (!checkpoint.record.empty()) metadata.emplace("model", model_record_text(checkpoint.record));
  if (!checkpoint.data.empty()) metadata.emplace("data", checkpoint.data);
  add_checksums(metadata, tensors);
  write_safetensors(path, tensors, metadata);
}

std::vector<StoredTensor> StoredCheckpoint::tensors(std::string_view prefix) const {
  std::vector<StoredTensor> result;
  for (const SafetensorsEntry& entry : file->entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    result.push_back({entry.name.substr(prefix.size()), *entry.dtype, entry.shape,
                      [this, &name = entry.name] { return file->read(name); }});
  }
  return result;
}

StoredCheckpoint open_checkpoint_file(const std::string& path, std::int64_t step) {
  StoredCheckpoint checkpoint{{}, SafetensorsFile::open(path)};
  const SafetensorsFile& file = *checkpoint.file;
  const std::vector<std::string> bad = verify_checksums(file);
  check(bad.empty(), "checkpoint", "{}: the checksum of {} does not hold", path,
        bad.empty() ? "" : escape_for_print(bad.front()));
  checkpoint.step = metadata_number(file, "step");
  checkpoint.tokens = metadata_number(file, "tokens");
  checkpoint.sequences = metadata_number(file, "sequences");
  check(checkpoint.step == step, "checkpoint", "{}: the step inside, {}, differs from the step in the file's name",
        path, checkpoint.step);
  if (const auto record = file.metadata().find("model"); record != file.metadata().end()) {
    checkpoint.record = model_record_from_text(record->second, formatted("checkpoint {}, metadata 'model'", path));
  }
  if (const auto data = file.metadata().find("data"); data != file.metadata().end()) checkpoint.data = data->second;
  for (const SafetensorsEntry& entry : file.entries()) {
    const bool known = entry.name.starts_with("model.") || entry.name.starts_with("optimiser.");
    if (!known) fail("checkpoint", "{}: unexpected tensor '{}'", path, escape_for_print(entry.name));
    if (!entry.dtype) file.read(entry.name);  // throws
  }
  return checkpoint;
}

}  // namespace tally
