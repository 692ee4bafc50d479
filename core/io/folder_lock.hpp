// The lock of a folder, for processes that create it or write to it: two at once would mix their files.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "core/error.hpp"
#include "core/io/file_descriptor.hpp"

namespace tally {

// Held while the result is open; nothing if another process has it, even after all tries, which are 15 ms apart. On a
// file system without locks a single process is assumed. Throws Error with the tag `what` if the folder cannot be
// opened, or was renamed before it was locked.
inline std::optional<FileDescriptor> lock_folder(std::string_view what, const std::string& folder, int tries = 1) {
  FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check(file.open(), what, "cannot open '{}': {}", folder, std::strerror(errno));
  for (int failed = 0; ::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;) {
    if (++failed >= tries) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  struct stat opened {
  }, named{};
  const bool same = ::fstat(file.number(), &opened) == 0 && ::stat(folder.c_str(), &named) == 0 &&
                    opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  check(same, what, "another process has just moved '{}' aside", folder);
  return file;
}

}  // namespace tally
