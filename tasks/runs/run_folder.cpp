#include "tasks/runs/run_folder.hpp"

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/folder_lock.hpp"
#include "core/io/lease.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

const JsonLimits config_limits{.max_depth = 16, .max_values = 10'000};
constexpr const char* imported_key = "imported";
const JsonLimits results_limits{.max_depth = 16, .max_values = 1'000'000};  // errors by key can be many

// An unused name next to `path`.
std::string aside_path(const std::string& path) {
  std::string candidate = path + ".old";
  for (int n = 2; fs::exists(fs::symlink_status(candidate)); ++n) candidate = formatted("{}.old-{}", path, n);
  return candidate;
}

// True if the folder is empty, or has only the remains of a process killed while it wrote the configuration of a new
// run.
bool holds_nothing(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != "config.json.tmp") return false;
  }
  return !error;
}

// The lock of a folder, held while it is open. Throws RunInUse if another process has it.
FileDescriptor lock_of(const std::string& folder) {
  // A process that makes a run, or checks whether it is free, holds the lock for a moment. Training holds it longer.
  std::optional<FileDescriptor> lock = lock_folder("run", folder, 20);
  if (!lock) throw RunInUse(formatted("[run] another process is training in '{}'", folder));
  return std::move(*lock);
}

// Throws Error if a process trains in a run below the folder, such as a run of a sweep.
void refuse_runs_at_work_below(const std::string& folder) {
  std::error_code error;
  const auto readable = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, readable, error), end; at != end; at.increment(error)) {
    if (at->is_directory(error) && has_config(at->path())) lock_of(at->path().string());
  }
}

}  // namespace

std::string run_name(std::string_view encoding, const std::vector<std::pair<std::string, std::string>>& settings,
                     std::int64_t seed) {
  std::string name(encoding);
  for (const auto& [key, value] : settings) name += formatted("-{}={}", key, value);
  name += formatted("-seed{}", seed);
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) <= ' ') c = '_';
  }
  return name;
}

FileDescriptor RunFolder::make_way(const std::string& path, bool force) {
  const std::string folder = without_slashes(path);
  check(!folder.empty(), "run", "the name of the run folder is empty");
  std::error_code error;
  const auto status = fs::symlink_status(folder, error);
  const bool there = fs::exists(status);
  const bool empty_folder = there && fs::is_directory(folder, error) && holds_nothing(folder);
  FileDescriptor lock_of_old;  // only one of two processes can move it
  if (there && !empty_folder) {
    // The lock comes first: a run that is being created has no config.json yet.
    if (fs::is_directory(folder, error)) lock_of_old = lock_of(folder);
    const bool is_run = fs::exists(folder + "/config.json", error);
    check(force, "run", "'{}{}", folder,
          is_run ? "' holds a run already; go on with 'tally resume', or use --force to move "
                   "it aside"
                 : "' is there already and is not a run; choose another name, or use --force to move it aside");
    if (fs::is_directory(folder, error)) refuse_runs_at_work_below(folder);
    const std::string aside = aside_path(folder);
    fs::rename(folder, aside, error);
    check(!error, "run", "cannot move '{}' to '{}': {}", folder, aside, error.message());
  }
  return lock_of_old;
}

RunFolder RunFolder::create(const std::string& path, const RunConfig& config, bool force, bool imported) {
  config.validate();
  const std::string folder = without_slashes(path);
  const FileDescriptor lock_of_old = make_way(folder, force);
  make_folder("run", folder);
  RunFolder run(folder, config.clone());
  run.imported_ = imported;
  run.lock();
  // Another process may have made and finished its run here between the check above and the lock.
  check(holds_nothing(folder), "run", "'{}' holds a run already: another process has just made it", folder);
  run.write_config();
  return run;
}

RunFolder RunFolder::existing(const std::string& path) {
  RunFolder run(without_slashes(path), {});
  check(is_folder(run.path_), "run", "there is no folder '{}'", run.path_);
  check(has_config(run.path_), "run", "'{}' holds no run: it has no config.json", run.path_);
  return run;
}

RunFolder RunFolder::open(const std::string& path) {
  RunFolder run = existing(path);
  run.read_config();
  return run;
}

RunFolder RunFolder::open_to_train(const std::string& path) {
  RunFolder run = existing(path);
  run.lock();
  run.read_to_train();
  return run;
}

RunFolder RunFolder::open_beside(const std::string& path) {
  RunFolder run = existing(path);
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

void RunFolder::read_config() {
  const JsonValue json = read_json(config_path(), config_limits);
  in_file(config_path(), [&] {
    config_ = config_from(json);
    config_.validate();
    imported_ = json.contains(imported_key) && json.boolean(imported_key);
  });
}

JsonValue RunFolder::stored_config() const {
  JsonValue json = config_.to_json(), task = json.at("task");
  const std::string folder = absolute_path(path_);
  for (const std::string& name : path_options(*config_.task, *config_.task_options)) {
    task.set(name, path_from(folder, task.string(name)));
  }
  json.set("task", std::move(task));
  return imported_ ? json.set(imported_key, true) : json;
}

void RunFolder::write_config() const { write_file_atomically(config_path(), write_json(stored_config(), 2) + "\n"); }

RunConfig RunFolder::config_from(const JsonValue& stored) const {
  RunConfig config = RunConfig::from_json(stored);
  const JsonValue& task = stored.at("task");
  for (const std::string& name : path_options(*config.task, *config.task_options)) {
    const fs::path path = task.contains(name) ? task.string(name) : "";
    if (path.empty() || path.is_absolute()) continue;
    if (path_exists(path_ / path)) config.set("task." + name, (path_ / path).string());
  }
  return config;
}

bool RunFolder::begins_with_weights() const {
  std::error_code error;
  return imported_ || config_.origin || fs::exists(fs::symlink_status(checkpoint_path(0), error));
}

std::string RunFolder::checkpoint_path(std::int64_t step) const {
  return formatted("{}/checkpoints/{}", path_, checkpoint_name(step));
}

bool RunFolder::finished() const {
  return changes_.empty() && !last_checkpoint_damaged_ && path_exists(results_path());
}

JsonValue RunFolder::read_results() const {
  check(finished(), "run", "'{}' is not finished: it has no results.json", path_);
  JsonValue results = read_json(results_path(), results_limits);
  return in_file(results_path(), [&] {
    check(results.is_object(), "results", "must be an object, not {}", results.kind());
    results.integer("best_step");
    for (const JsonValue& line : results.elements("evaluations")) evaluation_from_json(line);
    return std::move(results);
  });
}

void RunFolder::check_still_ours() const {
  if (claim_ == 0 || !overtaken(path_, claim_)) return;
  throw RunInUse(formatted("[run] another process has taken '{}' over, for this one did not renew its lease", path_));
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
  if (writes_) write_config();
}

void RunFolder::begin() {
  check_still_ours();
  if (writes_) remove_file("run", results_path());
  last_checkpoint_damaged_ = false;
  if (changes_.empty()) return;
  if (writes_) write_config();
  changes_.clear();
}

void RunFolder::lock() {
  if (writes_ && !lock_.open()) lock_ = lock_of(path_);
}

std::vector<std::int64_t> RunFolder::checkpoint_steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  const std::string folder = path_ + "/checkpoints";
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::int64_t step = step_of_checkpoint(entry.path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  check(!error || error == std::errc::no_such_file_or_directory, "checkpoint", "cannot read the folder '{}': {}",
        folder, error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

void RunFolder::write_checkpoint(const Checkpoint& checkpoint, const NamedTensors& model,
                                 const NamedTensors& optimiser) const {
  check_still_ours();
  write_checkpoint_file(checkpoint_path(checkpoint.step), checkpoint, model, optimiser);
  sound_.insert(checkpoint.step);
}

void RunFolder::check_can_write_checkpoints(std::int64_t first, std::int64_t last) const {
  std::error_code error;
  make_folder("checkpoint", path_ + "/checkpoints");
  for (const std::int64_t step : checkpoint_steps()) {
    const std::string path = checkpoint_path(step);
    check(step < first || step > last || fs::is_regular_file(path, error), "checkpoint",
          "{}: is in the way of a checkpoint and is not a file", path);
  }
  const AtomicFile trial(checkpoint_path(first));  // deletes its temporary file again
}

StoredCheckpoint RunFolder::open_checkpoint(std::int64_t step) const {
  StoredCheckpoint checkpoint = open_checkpoint_file(checkpoint_path(step), step);
  sound_.insert(step);
  return checkpoint;
}

StoredCheckpoint RunFolder::newest_checkpoint(const std::function<void(const std::string&)>& skipped) const {
  for (std::vector<std::int64_t> steps = checkpoint_steps(); !steps.empty(); steps.pop_back()) {
    try {
      return open_checkpoint(steps.back());
    } catch (const Error& error) {
      skipped(error.what());
    }
  }
  return {};
}

void RunFolder::refuse_lost_start(const StoredCheckpoint& newest, const std::vector<MetricsRecord>& metrics) const {
  if (newest.step > 0) return;
  check(newest.file || !begins_with_weights(), "checkpoint",
        "{}: is missing or cannot be read, and the run begins with the model in it; bring the file back, or make the "
        "run again, with --force",
        checkpoint_path(0));
  constexpr const char* advice =
      "; bring them back (owner, rights), or begin again at step 0: 'tally resume --restart' moves what is left aside";
  const std::vector<std::int64_t> steps = checkpoint_steps();
  check(steps.empty() || steps.back() == 0, "checkpoint",
        "'{}' has {} checkpoints, the newest of step {}, and none that was trained can be read{}", path_, steps.size(),
        steps.empty() ? 0 : steps.back(), advice);
  // The first checkpoint is written before any later step is recorded.
  const std::optional<RunConfig> trained = trained_config(metrics);
  const RunConfig& config = trained ? *trained : config_;
  const std::int64_t first_saved = std::min(config.save_interval(), config.run.steps);
  std::int64_t reached = 0;
  for (const MetricsRecord& record : metrics) {
    const std::int64_t before = std::holds_alternative<StartRecord>(record) ? 0 : first_saved;
    if (step_of(record) > before) reached = std::max(reached, step_of(record));
  }
  check(reached == 0 && !path_exists(results_path()), "checkpoint",
        "'{}' was trained{} before, and its checkpoints are gone{}", path_,
        reached == 0 ? "" : formatted(" to step {}", reached), advice);
}

std::string RunFolder::set_aside(const std::vector<std::int64_t>& steps) const {
  const bool metrics = path_exists(metrics_path()), results = path_exists(results_path());
  if (steps.empty() && !metrics && !results) return "";
  check_still_ours();
  const std::string folder = aside_path(path_ + "/checkpoints");
  make_folder("run", folder);
  for (const std::int64_t step : steps) {
    move_path("run", checkpoint_path(step), formatted("{}/{}", folder, checkpoint_name(step)));
  }
  if (metrics) fs::copy_file(metrics_path(), folder + "/metrics.jsonl");
  if (results) move_path("run", results_path(), folder + "/results.json");
  return folder;
}

std::string RunFolder::restart() const {
  if (begins_with_weights()) open_checkpoint(0);  // throws
  std::vector<std::int64_t> steps = checkpoint_steps();
  std::erase(steps, 0);
  const std::string folder = set_aside(steps);
  remove_file("run", metrics_path());
  return folder;
}

void RunFolder::prune_checkpoints(std::int64_t best, const std::function<bool(std::int64_t)>& planned,
                                  const std::function<void(const std::string&)>& skipped) const {
  const auto is_sound = [&](std::int64_t step) {
    try {
      if (!sound_.contains(step)) open_checkpoint(step);
      return true;
    } catch (const Error& error) {
      skipped(formatted("{}; it is now in {}", error.what(), set_aside({step})));
      return false;
    }
  };
  std::int64_t newer = 0;  // planned checkpoints newer than the current one
  for (std::vector<std::int64_t> steps = checkpoint_steps(); !steps.empty(); steps.pop_back()) {
    const std::int64_t step = steps.back();
    const bool keep = step == 0 || newer == 0 || step == best || (planned(step) && newer < 2);
    newer += planned(step);
    std::error_code error;
    if (!keep && is_sound(step)) fs::remove(checkpoint_path(step), error);
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
