// sweep.json: the list of runs in a plan's folder, shared by all plans that work there.
#include <algorithm>
#include <filesystem>

#include "core/io/atomic_file.hpp"
#include "core/io/lease.hpp"
#include "tasks/sweep/run_plan.hpp"

namespace tally {
namespace fs = std::filesystem;

std::vector<PlannedRun> listed_runs(const std::string& folder) {
  const std::string file = formatted("{}/{}", folder, sweep_file_name);
  std::error_code error;
  check(fs::exists(file, error), "sweep",
        "'{}' holds no sweep: it has no {}; what it is to train is said with --task, --pe and --seeds", folder,
        sweep_file_name);
  std::vector<PlannedRun> runs;
  const JsonValue sweep = read_sweep_file(file);
  in_file(file, [&] {
    for (const JsonValue& run : sweep.elements("runs")) {
      const std::string& name = run.string("name");
      const fs::path path(name);
      check(!name.empty() && path.is_relative() && std::ranges::count(path, fs::path("..")) == 0, "sweep",
            "'{}' is no name of a run's folder", name);
      runs.push_back({name, RunConfig::from_json(run.at("config"))});
      runs.back().config.validate();
    }
  });
  return runs;
}

void RunPlan::write_list() {
  std::error_code error;
  fs::create_directories(folder_, error);
  check(!error, "sweep", "cannot make the folder '{}': {}", folder_, error.message());
  write_state();
}

void RunPlan::note(const PlannedRun& run) const {
  if (!beside_others_ || ended_badly(run.state)) write_state();
}

void RunPlan::write_state() const {
  // Other plans may write to the folder at the same time, so their entries are kept.
  const std::string file = formatted("{}/{}", folder_, sweep_file_name);
  const FileDescriptor lock = wait_for_lock_file(file + ".lock");
  std::map<std::string, const PlannedRun*> own;
  for (const PlannedRun& run : runs_) own[run.name] = &run;
  JsonValue runs = JsonValue::array(), before;
  std::error_code error;
  if (fs::exists(file, error)) {
    before = read_sweep_file(file);
    for (const JsonValue& entry : before.elements("runs")) {
      const auto known = own.find(entry.string("name"));
      const bool ended_elsewhere = beside_others_ && ended_badly(run_state_from_text(entry.string("state"))) &&
                                   known != own.end() && known->second->state == RunState::unfinished;
      if (!ended_elsewhere && known != own.end() && known->second->state != RunState::waiting) continue;
      runs.push(entry);
      if (known != own.end()) own.erase(known);
    }
  }
  for (const PlannedRun& run : runs_) {
    if (!own.contains(run.name)) continue;
    runs.push(JsonValue::object({{"name", run.name}, {"state", name_of(run.state)}, {"config", run.config.to_json()}}));
  }
  const JsonValue after = JsonValue::object({{"format", 1}, {"runs", std::move(runs)}});
  if (after != before) write_file_atomically(file, write_json(after) + "\n");
}

}  // namespace tally
