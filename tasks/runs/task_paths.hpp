// Which options of a task are paths, and how a run keeps them: whole, so that they mean the same from every working
// directory, but for what lies in the run's own folder, which moves with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/data/task.hpp"

namespace tally {

// The options of free text of a task that reads files, except the name of a token. Other tasks have none.
std::vector<std::string> path_options(const TaskEntry& task, Options& options);

// From the root on; empty stays empty.
std::string absolute_path(std::string_view path);
// The path as seen from the folder, where it lies below it; else as it is. Both are absolute.
std::string path_from(const std::string& folder, const std::string& path);

}  // namespace tally
