// The folder of a run: config.json, metrics.jsonl, checkpoints/step-00000500.safetensors, results.json, curves.svg.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/file_descriptor.hpp"
#include "core/io/json.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/metrics.hpp"

namespace tally {

// Thrown if another process trains the run.
class RunInUse : public Error {
 public:
  using Error::Error;
};

class RunFolder {
 public:
  // A new run: makes the folder, locks it and writes config.json. Throws Error if the path holds a run or anything
  // else. `force` moves it aside first (to <path>.old, <path>.old-2, ...), unless a process trains in it. imported: the
  // run begins with the weights of a checkpoint of step 0, and config.json records that.
  static RunFolder create(const std::string& path, const RunConfig& config, bool force, bool imported = false);
  // The part of create() that frees the path. Hold the result until the new run has its own lock.
  static FileDescriptor make_way(const std::string& path, bool force);
  // An existing run. Throws Error if there is none, or if config.json cannot be read.
  static RunFolder open(const std::string& path);
  // The same, locked before anything is read. If the last checkpoint exists but cannot be read, the run is not
  // finished, even if results.json exists.
  static RunFolder open_to_train(const std::string& path);
  // The same for a process that trains the run together with the process that holds the lock. Locks and writes nothing.
  static RunFolder open_beside(const std::string& path);

  const std::string& path() const { return path_; }
  // Its paths are absolute.
  const RunConfig& config() const { return config_; }
  // The configuration as written to disk: paths inside the folder are relative to it, so that the run can be moved.
  JsonValue stored_config() const;
  std::string config_path() const { return path_ + "/config.json"; }
  std::string results_path() const { return path_ + "/results.json"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoint_path(std::int64_t step) const;

  // Whether results.json exists and belongs to this configuration.
  bool finished() const;
  // Throws Error if the run is not finished, and, naming the file, if it holds no results.
  JsonValue read_results() const;
  void write_results(const JsonValue& results) const;
  // Whether this process writes to the folder.
  bool writes() const { return writes_; }
  // Changes the configuration in memory; the files are not changed yet.
  void change_config(const RunConfig& config);
  // Changes only the paths of the task, because its files were moved. If the run is finished, the paths are written at
  // once and its results are kept.
  void relocate(const RunConfig& config);
  // The differences from the configuration on disk.
  const std::vector<std::string>& changes() const { return changes_; }
  // Call it before the run is resumed. Removes the results of a finished run, then writes a changed configuration,
  // atomically. After a kill in between, the run finishes again with the old configuration.
  void begin();

  // Keeps other processes from training in the folder as long as this object lives. The lock ends with the process,
  // however that ends. Throws RunInUse if another process holds it. Does nothing if it is already held.
  void lock();
  // The run is trained under this claim (core/io/lease.hpp). Once another process has taken the run over, writing a
  // configuration, a checkpoint or results throws RunInUse.
  void claimed(std::int64_t number) { claim_ = number; }

  // Whether the run begins with the weights in its checkpoint of step 0, which were imported or come from another run.
  bool begins_with_weights() const;
  // Steps of the checkpoint files, ascending. Throws Error if their folder exists and cannot be read.
  std::vector<std::int64_t> checkpoint_steps() const;
  void write_checkpoint(const Checkpoint& checkpoint, const NamedTensors& model, const NamedTensors& optimiser) const;
  // Throws Error if checkpoints of the steps from `first` to `last` cannot be written: the folder is not writable, or
  // the path of one is not a regular file.
  void check_can_write_checkpoints(std::int64_t first, std::int64_t last) const;
  // Throws Error if the file cannot be read or a checksum does not match.
  StoredCheckpoint open_checkpoint(std::int64_t step) const;
  // The newest checkpoint that can be read; step 0 without tensors if there is none. Calls `skipped` with the error of
  // each one that was skipped.
  StoredCheckpoint newest_checkpoint(const std::function<void(const std::string&)>& skipped) const;
  // Throws Error if a run that was trained before would begin again at step 0 because its checkpoints are damaged,
  // unreadable or missing. Throws also if an imported run would begin without its weights. `newest`: the result of
  // newest_checkpoint().
  void refuse_lost_start(const StoredCheckpoint& newest, const std::vector<MetricsRecord>& metrics) const;
  // Moves these checkpoints, a copy of the metrics and the results of the run to a new folder in the run,
  // checkpoints.old (checkpoints.old-2, ...). Returns its path; empty if there was nothing to move.
  std::string set_aside(const std::vector<std::int64_t>& steps) const;
  // Prepares the run to begin again at step 0. Sets everything aside except the weights that an imported run begins
  // with. If these cannot be read, throws Error and moves nothing. Returns the new folder, like set_aside().
  std::string restart() const;
  // Removes old checkpoints. It keeps step 0, which an imported run begins with, the last two planned steps, step
  // `best` (-1 for none), and all steps newer than the planned ones. An interrupted run leaves a checkpoint at a step
  // that is not planned. It is removed once a planned one is newer, so the final checkpoints are the same as in an
  // uninterrupted run. Each checkpoint is opened before it is removed, unless this object wrote or opened it. One that
  // cannot be read is set aside instead, and `skipped` is called with the error.
  void prune_checkpoints(std::int64_t best, const std::function<bool(std::int64_t step)>& planned,
                         const std::function<void(const std::string&)>& skipped) const;

  // The configuration with which the run was last trained, from its metrics; nothing if they do not record it.
  // config.json may have been edited by hand since.
  std::optional<RunConfig> trained_config(const std::vector<MetricsRecord>& metrics) const;

 private:
  RunFolder(std::string path, RunConfig config) : path_(std::move(path)), config_(std::move(config)) {}
  std::string path_;
  RunConfig config_;
  std::vector<std::string> changes_;
  bool imported_ = false;                 // recorded in config.json; earlier versions did not write it
  mutable std::set<std::int64_t> sound_;  // steps of checkpoints that this object wrote or opened
  bool last_checkpoint_damaged_ = false;
  bool writes_ = true;
  FileDescriptor lock_;
  std::int64_t claim_ = 0;  // 0: none

  void check_still_ours() const;
  // Without its configuration. Throws Error if the path holds no run.
  static RunFolder existing(const std::string& path);
  void read_to_train();
  void read_config();
  void write_config() const;
  RunConfig config_from(const JsonValue& stored) const;
};

// "cope-model.layers=1-seed2": a name for a folder. Characters of paths are replaced.
std::string run_name(std::string_view encoding, const std::vector<std::pair<std::string, std::string>>& settings,
                     std::int64_t seed);

}  // namespace tally
