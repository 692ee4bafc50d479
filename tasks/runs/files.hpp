// Checks of paths, which are false on any system error, and changes, which throw an Error with the path.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/error.hpp"

namespace tally {

inline bool path_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

inline bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// Whether the folder has a configuration, as every run has.
inline bool has_config(const std::filesystem::path& folder) { return path_exists(folder / "config.json"); }

// Makes the folder and its parents.
inline void make_folder(std::string_view where, const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check(!error, where, "cannot make the folder '{}': {}", path.string(), error.message());
}

// Removes the file if it exists.
inline void remove_file(std::string_view where, const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  check(!error, where, "cannot remove '{}': {}", path.string(), error.message());
}

inline void move_path(std::string_view where, const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  check(!error, where, "cannot move '{}' to '{}': {}", from.string(), to.string(), error.message());
}

}  // namespace tally
