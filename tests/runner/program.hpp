// Shared by tests of the program: a temporary folder, and running `tally` (or another program) in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;  // NOLINT: POSIX wants it declared by the user

namespace tally::testing {

// A new empty folder, removed with its contents at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tally_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot make the folder " << pattern;
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // The path of an entry.
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
}

struct Finished {
  int code = -1;  // exit code, or 128 + the signal that ended it
  std::string out, err;
  double cpu_seconds = 0;  // of all its threads
};

// Starts words[0] with the other words; stdout and stderr go to files in `folder`. Returns the process id.
inline pid_t start_program(const std::vector<std::string>& words, const TemporaryFolder& folder,
                           std::string_view name = "program") {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string out = folder / (std::string(name) + ".out"), err = folder / (std::string(name) + ".err");
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  pid_t process = -1;
  const int failed = posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  // An exception, because -1 as a process id means every process to kill() and waitpid().
  if (failed != 0) throw std::runtime_error("cannot start " + words[0]);
  return process;
}

// Waits for its end.
inline Finished finish_program(pid_t process, const TemporaryFolder& folder, std::string_view name = "program") {
  Finished result;
  int status = 0;
  rusage usage{};
  if (wait4(process, &status, 0, &usage) == process) {
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    result.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  result.out = read_file(folder / (std::string(name) + ".out"));
  result.err = read_file(folder / (std::string(name) + ".err"));
  return result;
}

inline Finished run_program(const std::vector<std::string>& words, const TemporaryFolder& folder) {
  return finish_program(start_program(words, folder), folder);
}

// tally with the arguments, from the same build.
inline Finished run_tally(std::vector<std::string> arguments, const TemporaryFolder& folder) {
  arguments.insert(arguments.begin(), TALLY_RUNNER);
  return run_program(arguments, folder);
}

// A model that trains in milliseconds: flip-flop of 16 symbols, 2 layers, width 8. `options` ("--steps=8") replace its
// settings and add to them.
inline std::vector<std::string> tiny_training(const std::string& run, const std::string& encoding,
                                              const std::vector<std::string>& options = {}) {
  std::vector<std::string> words{"train", run, "--task=flip-flop", "--pe=" + encoding, "--preset=quick", "--quiet"};
  const auto name_of = [](const std::string& option) { return option.substr(0, option.find('=')); };
  for (const char* setting :
       {"--length=16", "--model.width=8", "--model.heads=2", "--batch=4", "--steps=4", "--eval-every=2",
        "--save-every=2", "--log-every=1", "--optimiser.warmup=0", "--optimiser.weight-decay=0", "--task.eval-count=6",
        "--task.sparse-count=5", "--task.dense-count=4", "--eval-count=0", "--threads=1"}) {
    const bool replaced = std::any_of(options.begin(), options.end(),
                                      [&](const std::string& option) { return name_of(option) == name_of(setting); });
    if (!replaced) words.emplace_back(setting);
  }
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

}  // namespace tally::testing
