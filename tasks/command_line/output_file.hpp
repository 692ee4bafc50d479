// Files that a command writes where the user says: --out, --profile.
#pragma once

#include <string>
#include <vector>

namespace tally {

// Checks before any work that the file can be written. Throws UsageError for a file that belongs to a run or a sweep:
// its configuration, metrics, results, checkpoints or record of an import. The same for an existing file of a prepared
// text or of a model of another library. Throws Error if the file cannot be created in its folder.
// `new_run`: the folder of the run that the work is for; it need not exist yet.
void check_output(const std::string& path, const std::string& new_run = "");

// The extension of the file's name, ".svg". Throws UsageError naming the known ones for any other extension.
std::string known_ending(const std::string& path, const std::vector<std::string>& known);

}  // namespace tally
