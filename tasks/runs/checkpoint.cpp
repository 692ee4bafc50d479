#include "tasks/runs/checkpoint.hpp"

#include <charconv>
#include <cstdio>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "core/version.hpp"

namespace tally {
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
