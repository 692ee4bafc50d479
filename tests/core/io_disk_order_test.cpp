// The state after a loss of power depends on the order in which a file, its name and its folder reach the disk. These
// tests record the calls that decide it.
#include <fcntl.h>
#include <sys/syscall.h>

#include <vector>

#include "core/io/atomic_file.hpp"
#include "tests/core/io_files.hpp"

namespace {

std::vector<std::string>* calls = nullptr;  // null: not noted

std::string path_of(int file) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).string();
}

}  // namespace

// Instead of the C library's, in this program.
extern "C" int fsync(int file) {
  if (calls != nullptr) calls->push_back("sync " + path_of(file));
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (calls != nullptr) calls->push_back(std::string("rename ") + from + " " + to);
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

namespace tally::io_disk_order_test {

TEST(DiskOrder, BytesThenNameThenFolder) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.json");
  std::vector<std::string> noted;
  calls = &noted;
  write_file_atomically(path, "content");
  calls = nullptr;
  const std::string temporary = path + ".tmp";
  EXPECT_EQ(noted, (std::vector<std::string>{"sync " + temporary, "rename " + temporary + " " + path,
                                             "sync " + folder.path()}));
}

}  // namespace tally::io_disk_order_test
