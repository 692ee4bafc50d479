// The options of a task that are paths, and how a run stores them. Paths are absolute, so that they are valid in every
// working directory. Paths inside the run's folder are relative to it, because they move with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/data/task.hpp"

namespace tally {

// The free-text options of a task that reads files, except the name of a token. Other tasks have none.
std::vector<std::string> path_options(const TaskEntry& task, Options& options);

// The absolute path; an empty path stays empty.
std::string absolute_path(std::string_view path);
// The path relative to the folder if it is inside; otherwise unchanged. Both are absolute.
std::string path_from(const std::string& folder, const std::string& path);

}  // namespace tally
