#include "tasks/data/task_paths.hpp"

#include <algorithm>
#include <filesystem>

namespace tally {
namespace fs = std::filesystem;

std::vector<std::string> path_options(const TaskEntry& task, Options& options) {
  std::vector<std::string> names;
  if (!task.reads_files) return names;
  for (const OptionInfo& option : list_options(options)) {
    const bool free_text = std::holds_alternative<std::string>(option.value) && option.allowed.empty();
    if (free_text && option.name != "end-token") names.push_back(option.name);
  }
  return names;
}

std::string absolute_path(std::string_view path) {
  if (path.empty()) return {};
  const fs::path whole = fs::absolute(path);
  // "a/../b" differs from "b" if a is a symbolic link.
  return (std::ranges::count(whole, "..") > 0 ? whole : whole.lexically_normal()).string();
}

std::string path_from(const std::string& folder, const std::string& path) {
  const fs::path below = fs::path(path).lexically_relative(folder);
  return below.empty() || below == "." || *below.begin() == ".." ? path : below.string();
}

}  // namespace tally
