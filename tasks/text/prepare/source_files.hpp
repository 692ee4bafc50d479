// Lists the files below a folder, and detects the format of binary data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct SourceFile {
  enum class Problem { none, not_a_file, unreadable };
  std::string path;  // below the folder
  Problem problem = Problem::none;
  std::string reason = {};  // of the problem
  bool is_folder = false;   // one with a problem
};

// Everything except folders, in subfolders too, sorted by the bytes of the paths. Links are followed (the caches of
// model hubs hold only links). A link to a folder that contains the link is not a file, nor are pipes, sockets and
// devices. A broken link and a folder that cannot be opened are unreadable.
std::vector<SourceFile> files_below(const std::string& folder);

// "a Parquet file" for bytes that begin as a known format of binary data, with what to do; empty for others.
std::string binary_kind(std::string_view begin);

}  // namespace tally
