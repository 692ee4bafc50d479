#include "tasks/command_line/output_file.hpp"

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "nn/options.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/foreign/foreign_model.hpp"
#include "tasks/results/report.hpp"
#include "tasks/results/varied.hpp"
#include "tasks/runs/files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

// The path with links resolved and dots and double slashes removed, whether or not the file exists.
fs::path settled(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  fs::path result = fs::weakly_canonical(absolute, error);
  if (error) result = absolute.lexically_normal();
  return result.has_filename() ? result : result.parent_path();
}

// The run, sweep, prepared text or foreign model that contains this file; empty for none.
fs::path keeper_of(const fs::path& file, const fs::path& new_run) {
  const auto is_run = [&](const fs::path& folder) { return folder == new_run || has_config(folder); };
  const fs::path folder = file.parent_path(), name = file.filename();
  const bool of_a_run = name == "config.json" || name == "metrics.jsonl" || name == "results.json" ||
                        name == varied_file_name || name == imported_file_name;
  if (of_a_run && is_run(folder)) return folder;
  // Also checkpoints that were set aside, in checkpoints.old.
  if (folder.filename().string().starts_with("checkpoints") && is_run(folder.parent_path()))
    return folder.parent_path();
  const bool of_a_text = path_exists(folder / "manifest.json");
  if ((name == sweep_file_name || of_a_text || is_foreign_model(folder)) && path_exists(file)) return folder;
  return {};
}

}  // namespace

void check_output(const std::string& path, const std::string& new_run) {
  if (path.empty()) throw UsageError("[usage] the name of the file to write is empty");
  const fs::path file = settled(path), run = new_run.empty() ? fs::path() : settled(new_run);
  if (file == run) throw UsageError(formatted("[usage] '{}' is the folder of the run; name a file", path));
  if (const fs::path keeper = keeper_of(file, run); !keeper.empty()) {
    throw UsageError(formatted(
        "[usage] '{}' is kept by what was trained or prepared in '{}' and is not written over; choose another name",
        path, keeper.string()));
  }
  if (file.parent_path() == run && !path_exists(run)) return;  // it will be created
  const AtomicFile trial(path);                                // removes its temporary file
}

std::string known_ending(const std::string& path, const std::vector<std::string>& known) {
  const std::string ending = fs::path(path).extension().string();
  if (std::ranges::count(known, ending) > 0) return ending;
  throw UsageError(formatted("[usage] cannot write '{}': names of such files end in {}", path, joined(known)));
}

}  // namespace tally
