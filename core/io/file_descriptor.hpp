// An open file that closes automatically, and a lock that ends with it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace tally {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  bool open() const { return number_ >= 0; }
  int number() const { return number_; }
  // False, with errno set, when the system reports that earlier writes were lost.
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_ = -1;
};

// Waits until no other process has the lock of this file or folder, and holds it while the result lives. If the file
// cannot be opened, or the file system has no locks, nothing is locked: then a single writer is assumed.
inline FileDescriptor wait_for_lock(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::flock(file.number(), LOCK_EX);
  return file;
}

}  // namespace tally
