#include "tasks/run_folder.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/folder_lock.hpp"
#include "core/io/lease.hpp"
#include "core/utf8.hpp"
#include "core/version.hpp"
#include "tasks/task_paths.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

const JsonLimits config_limits{.max_depth = 16, .max_values = 10'000};
const JsonLimits results_limits{.max_depth = 16, .max_values = 1'000'000};  // errors by key are many

// A free name beside `path`.
std::string aside_path(const std::string& path) {
  std::string candidate = path + ".old";
  for (int n = 2; fs::exists(fs::symlink_status(candidate)); ++n) candidate = concat(path, ".old-", n);
  return candidate;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Nothing is in the folder, or what is left of a process that was killed while it wrote the configuration of a new run.
bool holds_nothing(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != "config.json.tmp") return false;
  }
  return !error;
}

// The lock of a folder, held as long as it is open. Throws RunInUse when another process has it.
FileDescriptor lock_of(const std::string& folder) {
  // Whoever makes a run or looks whether it is free has the lock too, for a moment: a training keeps it for longer.
  std::optional<FileDescriptor> lock = lock_folder("run", folder, 20);
  if (!lock) throw RunInUse(concat("[run] another process is training in '", folder, "'"));
  return std::move(*lock);
}

// Throws Error when a process trains in a run below the folder, as those of a sweep do.
void refuse_runs_at_work_below(const std::string& folder) {
  std::error_code error;
  const auto readable = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, readable, error), end; at != end; at.increment(error)) {
    if (at->is_directory(error) && fs::exists(at->path() / "config.json", error)) lock_of(at->path().string());
  }
}

std::string checkpoint_name(std::int64_t step) {
  char name[48];
  std::snprintf(name, sizeof name, "step-%08lld.safetensors", static_cast<long long>(step));
  return name;
}

// The step of a checkpoint's name, -1 for any other name.
std::int64_t step_of(const std::string& name) {
  std::int64_t step = -1;
  constexpr std::string_view head = "step-";
  if (name.starts_with(head)) std::from_chars(name.data() + head.size(), name.data() + name.size(), step);
  return step >= 0 && name == checkpoint_name(step) ? step : -1;
}

// A number that a checkpoint carries in its metadata.
std::int64_t metadata_number(const SafetensorsFile& file, const std::string& key) {
  const auto entry = file.metadata().find(key);
  check(entry != file.metadata().end(), "checkpoint", file.path(), ": the metadata has no '", key, "'");
  std::int64_t value = -1;
  const char* const end = entry->second.data() + entry->second.size();
  const auto read = std::from_chars(entry->second.data(), end, value);
  check(read.ec == std::errc() && read.ptr == end && value >= 0, "checkpoint", file.path(), ": '", key,
        "' is not a number");
  return value;
}

}  // namespace

std::string run_name(std::string_view encoding, const std::vector<std::pair<std::string, std::string>>& settings,
                     std::int64_t seed) {
  std::string name(encoding);
  for (const auto& [key, value] : settings) name += concat("-", key, "=", value);
  name += concat("-seed", seed);
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) <= ' ') c = '_';
  }
  return name;
}

NamedTensors with_prefix(const std::string& prefix, const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(prefix + name, tensor);
  return result;
}

FileDescriptor RunFolder::make_way(const std::string& path, bool force) {
  const std::string folder = without_slashes(path);
  check(!folder.empty(), "run", "the name of the run folder is empty");
  std::error_code error;
  const auto status = fs::symlink_status(folder, error);
  const bool there = fs::exists(status);
  const bool empty_folder = there && fs::is_directory(folder, error) && holds_nothing(folder);
  FileDescriptor lock_of_old;  // so that of two processes only one moves it
  if (there && !empty_folder) {
    // First: one that is being made is no run yet.
    if (fs::is_directory(folder, error)) lock_of_old = lock_of(folder);
    const bool is_run = fs::exists(folder + "/config.json", error);
    check(force, "run", "'", folder,
          is_run ? "' holds a run already; go on with 'tally resume', or use --force to move "
                   "it aside"
                 : "' is there already and is not a run; choose another name, or use --force to move it aside");
    if (fs::is_directory(folder, error)) refuse_runs_at_work_below(folder);
    const std::string aside = aside_path(folder);
    fs::rename(folder, aside, error);
    check(!error, "run", "cannot move '", folder, "' to '", aside, "': ", error.message());
  }
  return lock_of_old;
}

RunFolder RunFolder::create(const std::string& path, const RunConfig& config, bool force) {
  config.validate();
  const std::string folder = without_slashes(path);
  const FileDescriptor lock_of_old = make_way(folder, force);
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "run", "cannot make the folder '", folder, "': ", error.message());
  RunFolder run(folder, config.clone());
  run.lock();
  // Between the look above and the lock another process may have made its run here, and ended.
  check(holds_nothing(folder), "run", "'", folder, "' holds a run already: another process has just made it");
  write_file_atomically(run.config_path(), write_json(run.stored_config(), 2) + "\n");
  return run;
}

RunFolder RunFolder::open(const std::string& path) {
  RunFolder run(without_slashes(path), {});
  run.refuse_what_is_no_run();
  run.read_config();
  return run;
}

RunFolder RunFolder::open_to_train(const std::string& path) {
  RunFolder run(without_slashes(path), {});
  run.refuse_what_is_no_run();
  run.lock();
  run.read_to_train();
  return run;
}

RunFolder RunFolder::open_beside(const std::string& path) {
  RunFolder run(without_slashes(path), {});
  run.refuse_what_is_no_run();
  run.writes_ = false;
  run.read_to_train();
  return run;
}

void RunFolder::read_to_train() {
  read_config();
  if (const auto steps = checkpoint_steps(); finished() && !steps.empty()) {
    const std::int64_t good = newest_checkpoint([](const std::string&) {}).step;
    last_checkpoint_damaged_ = good < std::min(steps.back(), config_.run.steps);
  }
}

void RunFolder::refuse_what_is_no_run() const {
  std::error_code error;
  check(fs::is_directory(path_, error), "run", "there is no folder '", path_, "'");
  check(fs::exists(config_path(), error), "run", "'", path_, "' holds no run: it has no config.json");
}

void RunFolder::read_config() {
  const JsonValue json = read_json(config_path(), config_limits);
  in_file(config_path(), [&] {
    config_ = config_from(json);
    config_.validate();
  });
}

JsonValue RunFolder::stored_config() const {
  JsonValue json = config_.to_json(), task = json.at("task");
  const std::string folder = absolute_path(path_);
  for (const std::string& name : path_options(*config_.task, *config_.task_options)) {
    task.set(name, path_from(folder, task.string(name)));
  }
  return json.set("task", std::move(task));
}

RunConfig RunFolder::config_from(const JsonValue& stored) const {
  RunConfig config = RunConfig::from_json(stored, OtherRules::leave_out);
  const JsonValue& task = stored.at("task");
  std::error_code error;
  for (const std::string& name : path_options(*config.task, *config.task_options)) {
    const fs::path path = task.contains(name) ? task.string(name) : "";
    if (path.empty() || path.is_absolute()) continue;
    // Earlier versions wrote what lies in the working directory so, and what lies in the folder as seen from there.
    const fs::path own = fs::exists(path_ / path, error) || fs::exists(path, error) ? path : path.filename();
    if (fs::exists(path_ / own, error)) config.set("task." + name, (path_ / own).string());
  }
  return config;
}

std::string RunFolder::checkpoint_path(std::int64_t step) const {
  return concat(path_, "/checkpoints/", checkpoint_name(step));
}

bool RunFolder::finished() const {
  std::error_code error;
  return changes_.empty() && !last_checkpoint_damaged_ && fs::exists(results_path(), error);
}

JsonValue RunFolder::read_results() const {
  check(finished(), "run", "'", path_, "' is not finished: it has no results.json");
  JsonValue results = read_json(results_path(), results_limits);
  return in_file(results_path(), [&] {
    check(results.is_object(), "results", "must be an object, not ", results.kind());
    results.integer("best_step");
    for (const JsonValue& line : results.elements("evaluations")) evaluation_from_json(line);
    return std::move(results);
  });
}

void RunFolder::check_still_ours() const {
  if (claim_ == 0 || !overtaken(path_, claim_)) return;
  throw RunInUse(concat("[run] another process has taken '", path_, "' over, for this one did not renew its lease"));
}

void RunFolder::write_results(const JsonValue& results) const {
  check_still_ours();
  write_file_atomically(results_path(), write_json(results, 2) + "\n");
}

void RunFolder::change_config(const RunConfig& config) {
  config.validate();
  changes_ = differences(config_, config);
  config_ = config.clone();
}

void RunFolder::relocate(const RunConfig& config) {
  check_still_ours();
  config_ = config_.with_paths_of(config);
  if (writes_) write_file_atomically(config_path(), write_json(stored_config(), 2) + "\n");
}

void RunFolder::begin() {
  check_still_ours();
  std::error_code error;
  if (writes_) fs::remove(results_path(), error);
  check(!error, "run", "cannot remove '", results_path(), "': ", error.message());
  last_checkpoint_damaged_ = false;
  if (changes_.empty()) return;
  if (writes_) write_file_atomically(config_path(), write_json(stored_config(), 2) + "\n");
  changes_.clear();
}

void RunFolder::lock() {
  if (writes_ && !lock_.open()) lock_ = lock_of(path_);
}

std::vector<std::int64_t> RunFolder::checkpoint_steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_ + "/checkpoints", error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void RunFolder::write_checkpoint(const Checkpoint& checkpoint, const NamedTensors& model,
                                 const NamedTensors& optimiser) const {
  check_still_ours();
  NamedTensors tensors = with_prefix("model.", model);
  for (auto& entry : with_prefix("optimiser.", optimiser)) tensors.push_back(std::move(entry));
  Metadata metadata{{"format", "tally checkpoint"},
                    {"step", std::to_string(checkpoint.step)},
                    {"tokens", std::to_string(checkpoint.tokens)},
                    {"version", std::string(version)}};
  if (!checkpoint.record.empty()) metadata.emplace("model", model_record_text(checkpoint.record));
  if (!checkpoint.data.empty()) metadata.emplace("data", checkpoint.data);
  add_checksums(metadata, tensors);
  write_safetensors(checkpoint_path(checkpoint.step), tensors, metadata);
}

void RunFolder::check_can_write_checkpoints(std::int64_t first, std::int64_t last) const {
  std::error_code error;
  const std::string folder = path_ + "/checkpoints";
  fs::create_directories(folder, error);
  check(!error, "checkpoint", "cannot make the folder '", folder, "': ", error.message());
  for (const std::int64_t step : checkpoint_steps()) {
    const std::string path = checkpoint_path(step);
    check(step < first || step > last || fs::is_regular_file(path, error), "checkpoint", path,
          ": is in the way of a checkpoint and is not a file");
  }
  const AtomicFile trial(checkpoint_path(first));  // its temporary file goes again
}

std::vector<StoredTensor> RunFolder::StoredCheckpoint::tensors(std::string_view prefix) const {
  std::vector<StoredTensor> result;
  for (const SafetensorsEntry& entry : file->entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    result.push_back({entry.name.substr(prefix.size()), *entry.dtype, entry.shape,
                      [this, &name = entry.name] { return file->read(name); }});
  }
  return result;
}

RunFolder::StoredCheckpoint RunFolder::open_checkpoint(std::int64_t step) const {
  const std::string path = checkpoint_path(step);
  StoredCheckpoint checkpoint{{}, SafetensorsFile::open(path)};
  const SafetensorsFile& file = *checkpoint.file;
  const std::vector<std::string> bad = verify_checksums(file);
  check(bad.empty(), "checkpoint", path, ": the checksum of ", bad.empty() ? "" : escape_for_print(bad.front()),
        " does not hold");
  checkpoint.step = metadata_number(file, "step");
  checkpoint.tokens = metadata_number(file, "tokens");
  check(checkpoint.step == step, "checkpoint", path, ": the step inside, ", checkpoint.step,
        ", is not that of the file's name");
  if (const auto record = file.metadata().find("model"); record != file.metadata().end()) {
    checkpoint.record = model_record_from_text(record->second, concat("checkpoint ", path, ", metadata 'model'"));
  }
  if (const auto data = file.metadata().find("data"); data != file.metadata().end()) checkpoint.data = data->second;
  for (const SafetensorsEntry& entry : file.entries()) {
    const bool known = entry.name.starts_with("model.") || entry.name.starts_with("optimiser.");
    if (!known) fail("checkpoint", path, ": unexpected tensor '", escape_for_print(entry.name), "'");
    if (!entry.dtype) file.read(entry.name);  // throws
  }
  return checkpoint;
}

RunFolder::StoredCheckpoint RunFolder::newest_checkpoint(const std::function<void(const std::string&)>& skipped) const {
  for (std::vector<std::int64_t> steps = checkpoint_steps(); !steps.empty(); steps.pop_back()) {
    try {
      return open_checkpoint(steps.back());
    } catch (const Error& error) {
      skipped(error.what());
    }
  }
  return {};
}

void RunFolder::prune_checkpoints(std::int64_t best, const std::function<bool(std::int64_t)>& planned) const {
  std::int64_t newer = 0;  // planned ones beyond the one looked at
  for (std::vector<std::int64_t> steps = checkpoint_steps(); !steps.empty(); steps.pop_back()) {
    const std::int64_t step = steps.back();
    const bool keep = step == 0 || newer == 0 || step == best || (planned(step) && newer < 2);
    newer += planned(step);
    std::error_code error;
    if (!keep) fs::remove(checkpoint_path(step), error);
  }
}

std::optional<RunConfig> RunFolder::trained_config(const std::vector<MetricsRecord>& metrics) const {
  for (const RunRecord& run : all_of<RunRecord>(metrics)) {
    const JsonValue* config = run.json.find("config");
    if (config == nullptr) continue;
    return in_file(metrics_path(), [&] { return config_from(*config); });
  }
  return std::nullopt;
}

}  // namespace tally
