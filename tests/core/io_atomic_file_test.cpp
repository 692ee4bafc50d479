#include "core/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <vector>

#include "tests/core/io_files.hpp"

// The state after a loss of power depends on the order in which a file, its name and its folder reach the disk: the
// calls that decide it are recorded.
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

namespace tally::io_atomic_file_test {

// Runs the action in a child that can write at most `bytes` to a file, as if the disk were full after them. True when
// the action threw an Error that holds `part`.
bool fails_on_full_disk(rlim_t bytes, std::string_view part, const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // then write() reports EFBIG
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    ::_exit(holds(error_of(action), part) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(AtomicFile, WritesBesideTheWorkingFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_atomically("plain", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(bytes_of_file(folder.file("plain")), "x");
}

TEST(AtomicFile, FullDiskKeepsTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a", "old content");
  const std::string content(100000, 'n');
  EXPECT_TRUE(
      fails_on_full_disk(4096, "a: cannot write: File too large", [&] { write_file_atomically(path, content); }));
  EXPECT_EQ(bytes_of_file(path), "old content");
  EXPECT_EQ(folder.file_count(), 1U);  // the temporary is gone
}

TEST(AtomicFile, PiecesAreThereWhenFinished) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a", "old");
  {
    AtomicFile given_up(path);
    given_up.write("half");
  }
  EXPECT_EQ(folder.file_count(), 1U);
  AtomicFile file(path);
  file.write("one ");
  file.write("two");
  EXPECT_EQ(bytes_of_file(path), "old");
  file.finish();
  EXPECT_EQ(bytes_of_file(path), "one two");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, WritesOverWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  folder.file("a.tmp", std::string(1000, 'x'));
  write_file_atomically(folder.file("a"), "short");
  EXPECT_EQ(bytes_of_file(folder.file("a")), "short");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, KilledAtAnyMomentLeavesOldOrNew) {
  const TemporaryFolder folder;
  const std::string old_content(200000, 'o');
  const std::string new_content(200000, 'n');
  const std::string path = folder.file("a", old_content);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
        write_file_atomically(path, new_content);
        write_file_atomically(path, old_content);
      }
    }
    ::usleep(static_cast<useconds_t>(200 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string content = bytes_of_file(path);
    ASSERT_TRUE(content == old_content || content == new_content) << "after " << content.size() << " bytes";
  }
}

TEST(AtomicFile, ReplacesOnlyRegularFiles) {
  const TemporaryFolder folder;
  EXPECT_ERROR(write_file_atomically(folder.path(), "x"), "is not a regular file");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(write_file_atomically(pipe, "x"), "pipe: is there and is not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::rename(pipe, folder.file("b.tmp"));
  EXPECT_NE(error_of([&] { write_file_atomically(folder.file("b"), "x"); }), "");
  EXPECT_TRUE(std::filesystem::is_fifo(folder.file("b.tmp")));
  EXPECT_ERROR(write_file_atomically(folder.file("absent/a"), "x"), "absent/a: cannot create the file: No such file");
  EXPECT_ERROR(write_file_atomically(folder.file(std::string_view("a\0b", 3)), "x"), "zero byte");
}

TEST(AtomicFile, FollowsLinks) {
  const TemporaryFolder folder;
  const std::string target = folder.file("target", "old");
  std::filesystem::create_symlink("target", folder.file("link"));
  write_file_atomically(folder.file("link"), "new");
  EXPECT_EQ(bytes_of_file(target), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  std::filesystem::create_symlink("nowhere", folder.file("broken"));
  EXPECT_ERROR(write_file_atomically(folder.file("broken"), "x"), "cannot follow the link");
}

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

}  // namespace tally::io_atomic_file_test
