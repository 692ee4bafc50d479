#include "core/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"
#include "core/io/file_descriptor.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

[[noreturn]] void fail_to(std::string_view action, const std::string& path, int reason) {
  fail("file", "{}: cannot {}: {}", escape_for_print(path, 1000), action, std::strerror(reason));
}

// The file to be replaced: links are followed, so that rename does not replace a link by a file.
std::string resolve_target(const std::string& path) {
  namespace fs = std::filesystem;
  check(path.find('\0') == std::string::npos, "file", "{}: a path cannot hold a zero byte",
        escape_for_print(path, 1000));
  std::error_code error;
  std::string target = path;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    target = fs::canonical(path, error).string();
    if (error) fail_to("follow the link", path, error.value());
  }
  const fs::file_status status = fs::status(target, error);
  check(!fs::exists(status) || fs::is_regular_file(status), "file",
        "{}: is there and is not a regular file, so it is not replaced", escape_for_print(path, 1000));
  return target;
}

// Makes the rename last through a loss of power.
void sync_folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.open()) fail_to("open the folder", folder, errno);
  // EINVAL: the file system has nothing to write for a folder.
  if (::fsync(file.number()) != 0 && errno != EINVAL) fail_to("write the folder to the disk", folder, errno);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : target_(resolve_target(path)), temporary_(target_ + ".tmp") {
  constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = FileDescriptor(::open(temporary_.c_str(), flags, 0666));
  if (!file_.open()) {
    const int reason = errno;
    std::error_code ignored;
    const bool in_the_way = std::filesystem::exists(std::filesystem::symlink_status(temporary_, ignored));
    fail_to("create the file", in_the_way ? temporary_ : target_, reason);
  }
  struct stat status {};
  check(::fstat(file_.number(), &status) == 0 && S_ISREG(status.st_mode), "file",
        "{}: is in the way and is not a regular file", escape_for_print(temporary_, 1000));
  ours_ = true;
}

AtomicFile::~AtomicFile() {
  if (ours_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t longest_write = std::size_t{1} << 30;  // Linux writes less than 2 GiB at a time
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.number(), bytes.data(), std::min(bytes.size(), longest_write));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to("write", target_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::finish() {
  if (::fsync(file_.number()) != 0) fail_to("write to the disk", target_, errno);
  if (!file_.close()) fail_to("write", target_, errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_to("replace the file", target_, errno);
  ours_ = false;
  sync_folder_of(target_);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace tally
