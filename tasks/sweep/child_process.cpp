#include "tasks/sweep/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/io/file_descriptor.hpp"

namespace tally {

pid_t start_tally(const std::vector<std::string>& arguments, const std::string& log) {
  const FileDescriptor file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  check(file.open(), "sweep", "cannot write {}: {}", log, std::strerror(errno));
  std::vector<std::string> words{"tally"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t child = fork();
  check(child >= 0, "sweep", "cannot start another process: {}", std::strerror(errno));
  if (child > 0) return child;
  // Only calls that are safe after a fork. A separate process group keeps the terminal's Ctrl-C from the child: the
  // parent forwards it, and two signals would stop the child at once.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(143);  // it ended before the line above
  dup2(file.number(), STDOUT_FILENO);
  dup2(file.number(), STDERR_FILENO);
  execv("/proc/self/exe", argv.data());
  constexpr char message[] = "tally: cannot start itself again\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
  _exit(127);
}

std::optional<EndedProcess> wait_for_child(int milliseconds) {
  constexpr int pause = 5;
  for (int waited = 0;; waited += pause) {
    int status = 0;
    const pid_t process = waitpid(-1, &status, WNOHANG);
    if (process > 0) return EndedProcess{process, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    if (waited >= milliseconds) return std::nullopt;
    const timespec time{0, pause * 1'000'000L};
    if (nanosleep(&time, nullptr) != 0) return std::nullopt;
  }
}

}  // namespace tally
