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

// A run that another process trains.
class RunInUse : public Error {
 public:
  using Error::Error;
};

class RunFolder {
 public:
  // A new run: makes the folder, locks it and writes config.json. Throws Error when the path holds a run or anything
  // else; `force` moves it aside first (to <path>.old, <path>.old-2, ...), unless a process trains
  // in it. imported: the run begins with the weights of a checkpoint of step 0, and config.json records that.
  static RunFolder create(const std::string& path, const RunConfig& config, bool force, bool imported = false);
  // The part of it that makes the path free. What it returns is to be held until the new run has its own lock.
  static FileDescriptor make_way(const std::string& path, bool force);
  // An existing run. Throws Error when there is none, or when config.json cannot be read.
  static RunFolder open(const std::string& path);
  // The same, locked before anything is read. Where the last checkpoint is there but cannot be read, the run is not
  // finished, whatever results.json says.
  static RunFolder open_to_train(const std::string& path);
  // The same for a process that trains it together with the one that has the lock: nothing of it is locked or written.
  static RunFolder open_beside(const std::string& path);

  const std::string& path() const { return path_; }
  // Its paths are absolute.
  const RunConfig& config() const { return config_; }
  // As it is written down: paths in the folder as seen from there, so that the run can be moved.
  JsonValue stored_config() const;
  std::string config_path() const { return path_ + "/config.json"; }
  std::string results_path() const { return path_ + "/results.json"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoint_path(std::int64_t step) const;

  // results.json is there, and is of this configuration.
  bool finished() const;
  // Throws Error when the run is not finished, and naming the file when it holds no results.
  JsonValue read_results() const;
  void write_results(const JsonValue& results) const;
  // Whether it is this process that writes what is in it.
  bool writes() const { return writes_; }
  // Another configuration from here on; on disk nothing changes yet.
  void change_config(const RunConfig& config);
  // Paths of the task alone are others: the files were moved. Of a run that is finished they are written at once, and
  // its results stay.
  void relocate(const RunConfig& config);
  // In what it differs from that on disk.
  const std::vector<std::string>& changes() const { return changes_; }
  // To be called before the run goes on: removes the results of one that was finished, then writes a changed
  // configuration, atomically. A kill in between leaves a run that finishes again as it was.
  void begin();

  // Keeps other processes from training in the folder as long as this object lives; gone with the process however it
  // ends. Throws RunInUse when another one holds it. Nothing is done where it is held already.
  void lock();
  // It is trained under this claim (core/io/lease.hpp). From here on RunInUse is thrown instead of writing a
  // configuration, a checkpoint or results once another one has taken the run over.
  void claimed(std::int64_t number) { claim_ = number; }

  // Whether the run begins with the imported weights in its checkpoint of step 0.
  bool imported() const;
  // Steps of the checkpoint files, rising. Throws Error when their folder exists and cannot be read.
  std::vector<std::int64_t> checkpoint_steps() const;
  void write_checkpoint(const Checkpoint& checkpoint, const NamedTensors& model, const NamedTensors& optimiser) const;
  // Throws Error when checkpoints of the steps from `first` to `last` cannot be written: the folder cannot, or what is
  // no file is in the way of one.
  void check_can_write_checkpoints(std::int64_t first, std::int64_t last) const;
  // Throws Error when the file cannot be read or a checksum does not hold.
  StoredCheckpoint open_checkpoint(std::int64_t step) const;
  // The newest checkpoint that can be read; step 0 without tensors if there is none. Calls `skipped` with the error of
  // each one that was passed over.
  StoredCheckpoint newest_checkpoint(const std::function<void(const std::string&)>& skipped) const;
  // Throws Error when a run that was trained before would begin again at step 0 because its checkpoints are damaged,
  // unreadable or gone. Throws also when an imported run would begin without its weights. `newest`: the result of
  // newest_checkpoint().
  void refuse_lost_start(const StoredCheckpoint& newest, const std::vector<MetricsRecord>& metrics) const;
  // Moves these checkpoints, a copy of the metrics and the results of the run to a new folder in the run,
  // checkpoints.old (checkpoints.old-2, ...). Returns its path; empty when there was nothing to move.
  std::string set_aside(const std::vector<std::int64_t>& steps) const;
  // The run is to begin again at step 0: sets all aside but the weights that an imported run begins with. Throws Error,
  // and moves nothing, when these cannot be read. Returns the new folder, like set_aside().
  std::string restart() const;
  // Removes old checkpoints. It keeps step 0, which an imported run begins with, the last two planned steps, step
  // `best` (-1 for none), and all steps newer than the planned ones. An interrupted run leaves a checkpoint at a step
  // that is not planned; it is removed once a planned one is newer, so that in the end the same checkpoints exist as in
  // an uninterrupted run. Each is opened before it is removed, unless this object wrote or opened it; one that cannot
  // be read is set aside instead, and `skipped` is called with the error.
  void prune_checkpoints(std::int64_t best, const std::function<bool(std::int64_t step)>& planned,
                         const std::function<void(const std::string&)>& skipped) const;

  // The configuration with which the run was trained last, from its metrics; nothing where they do not say so. That of
  // config.json may have been changed by hand since.
  std::optional<RunConfig> trained_config(const std::vector<MetricsRecord>& metrics) const;

 private:
  RunFolder(std::string path, RunConfig config) : path_(std::move(path)), config_(std::move(config)) {}
  std::string path_;
  RunConfig config_;
  std::vector<std::string> changes_;
  bool imported_ = false;                 // config.json says so; earlier versions did not write it
  mutable std::set<std::int64_t> sound_;  // steps of the checkpoints that were written or opened here
  bool last_checkpoint_damaged_ = false;
  bool writes_ = true;
  FileDescriptor lock_;
  std::int64_t claim_ = 0;  // 0: none

  void check_still_ours() const;
  void refuse_what_is_no_run() const;
  void read_to_train();
  void read_config();
  void write_config() const;
  RunConfig config_from(const JsonValue& stored) const;
};

// "cope-model.layers=1-seed2": a name for a folder; what could be a path is not.
std::string run_name(std::string_view encoding, const std::vector<std::pair<std::string, std::string>>& settings,
                     std::int64_t seed);

}  // namespace tally
