// Shared by tests of the program: a temporary folder, which is the working directory of `tally` and other programs, and
// the fixture that runs them.
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

#include "core/io/json.hpp"

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

// Starts words[0] with the other words in `folder`, where files hold its stdout and stderr. Returns the process id.
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
  posix_spawn_file_actions_addchdir_np(&actions, folder.path().c_str());
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

inline bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The words of a line. Blanks within '...' do not separate words.
inline std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool quoted = false, inside = false;
  for (const char c : line) {
    quoted ^= c == '\'';
    if (c == ' ' && !quoted) {
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      inside = true;
      if (c != '\'') words.back() += c;
    }
  }
  return words;
}

// The line of tiny_training, also of another command with these options.
inline std::string tiny(const std::string& run, const std::string& encoding, const std::string& options = "",
                        const std::string& command = "train") {
  std::string line = command;
  const std::vector<std::string> words = tiny_training(run, encoding, words_of(options));
  for (std::size_t n = 1; n < words.size(); ++n) {
    if (command == "train" || words[n] != "--quiet") line += " " + words[n];
  }
  return line;
}

// The same, not quiet.
inline std::string loud(std::string line) {
  const std::string quiet = " --quiet";
  return line.erase(line.find(quiet), quiet.size());
}

// A line and a part of the message that refuses it.
struct Refusal {
  std::string line, message;
};

// Runs lines of words with tally in a folder of the test. Paths are relative to this folder.
class Program : public ::testing::Test {
 protected:
  Finished tally(const std::string& line) const { return run_tally(words_of(line), folder_); }
  // The standard output of a line that must succeed.
  std::string done(const std::string& line) const {
    const Finished finished = tally(line);
    EXPECT_EQ(finished.code, 0) << line << "\n" << finished.err;
    return finished.out;
  }
  // The first line that it prints with --json.
  JsonValue json(const std::string& line, int code = 0) const {
    const Finished finished = tally(line + " --json");
    EXPECT_EQ(finished.code, code) << line << "\n" << finished.err;
    return parse_json(finished.out.substr(0, finished.out.find('\n')), {}, line);
  }
  void refused(const std::string& line, std::string_view message, int code = 2) const {
    const Finished finished = tally(line);
    EXPECT_EQ(finished.code, code) << line << "\n" << finished.out;
    EXPECT_TRUE(holds(finished.err, "tally: ") && holds(finished.err, message)) << line << "\n" << finished.err;
  }
  void refused(const std::vector<Refusal>& cases, int code = 2) const {
    for (const auto& [line, message] : cases) refused(line, message, code);
  }
  pid_t start(const std::string& line, const std::string& name = "program") const {
    std::vector<std::string> words = words_of(line);
    words.insert(words.begin(), TALLY_RUNNER);
    return start_program(words, folder_, name);
  }
  Finished finish(pid_t process, const std::string& name = "program") const {
    return finish_program(process, folder_, name);
  }
  Finished shell(const std::string& command) const { return run_program({"/bin/sh", "-c", command}, folder_); }
  JsonValue file_json(const std::string& name) const { return parse_json(file(name), {}, name); }
  std::string file(const std::string& name) const { return read_file(folder_ / name); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  TemporaryFolder folder_;
};

// All parts are in the text.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
}

}  // namespace tally::testing
