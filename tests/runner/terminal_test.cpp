// The progress line on a terminal: a single line, redrawn, and cleared at the end. The terminal is a pseudo-terminal
// whose screen is computed here.
#include <gtest/gtest.h>

#include "core/io/file_descriptor.hpp"
#include "tasks/command_line/training.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::terminal_test {

struct Seen {
  int code = -1;
  std::string bytes;  // received by the terminal
};

// Runs tally with stdout on a new pseudo-terminal, after a shell command.
Seen run_on_terminal(const std::string& line, const TemporaryFolder& folder, const std::string& before = ":") {
  Seen seen;
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int number = terminal.number();
  char name[64];
  if (!terminal.open() || grantpt(number) != 0 || unlockpt(number) != 0 || ptsname_r(number, name, sizeof name) != 0) {
    ADD_FAILURE() << "no pseudo-terminal";
    return seen;
  }
  const pid_t process = start_program(
      {"/bin/sh", "-c", before + "; exec > '" + std::string(name) + "'; exec '" TALLY_RUNNER "' " + line}, folder);
  // Reads fail before the other side is opened, and after it is closed.
  char buffer[4096];
  bool opened = false;
  EXPECT_TRUE(comes_true([&] {
    const ssize_t count = read(number, buffer, sizeof buffer);
    if (count > 0) seen.bytes.append(buffer, static_cast<std::size_t>(count));
    opened = opened || count > 0;
    return count <= 0 && opened;
  }));
  seen.code = finish_program(process, folder).code;
  return seen;
}

// The lines on a terminal of unlimited width.
std::vector<std::string> screen_of(const std::string& bytes) {
  std::vector<std::string> lines{""};
  std::size_t column = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '\r') {
      column = 0;
    } else if (c == '\n') {
      lines.emplace_back();
    } else if (bytes.compare(i, 3, "\033[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else if (bytes.compare(i, 4, "\033[?7") == 0) {  // wrapping off and on
      i += 4;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = c;
    }
  }
  return lines;
}

TEST(Terminal, OneLineIsRedrawnAndClearedAtTheEnd) {
  const TemporaryFolder folder;
  const Seen seen =
      run_on_terminal(loud(tiny("run", "cope", "--steps=1000 --eval-every=0 --save-every=0 --log-every=1000")), folder);
  ASSERT_EQ(seen.code, 0) << seen.bytes;

  std::size_t drawn = 0, last = 0;
  const std::string begin = "\r\033[K\033[?7lstep ", end = " left\033[?7h";
  for (std::size_t at = seen.bytes.find(begin); at != std::string::npos; at = seen.bytes.find(begin, at + 1)) {
    ++drawn;
    last = at;
    const std::string line = seen.bytes.substr(at + begin.size(), seen.bytes.find(end, at) - at - begin.size());
    EXPECT_FALSE(holds(line, "\n") || holds(line, "\r")) << line;
    expect_parts(line, {"/1000  loss ", "  error ", "  lr ", "  grad ", " tokens/s  "});
  }
  EXPECT_GE(drawn, 2U) << seen.bytes;
  EXPECT_TRUE(seen.bytes.substr(last + begin.size()).starts_with("1000/1000  loss ")) << seen.bytes;

  // The line is cleared at the end.
  const std::vector<std::string> screen = screen_of(seen.bytes);
  std::string all;
  for (const std::string& line : screen) {
    all += line + "\n";
    EXPECT_FALSE(holds(line, "/1000  loss ")) << line;
  }
  expect_parts(all,
               {"\nflip-flop with cope: ", "\nstep 1000  in-distribution: ", "\nstep 1000  ood-dense: ", "\ndone in "});
}

TEST(Terminal, ANarrowLineLosesItsLeastImportantFields) {
  const std::vector<ProgressField> fields{{"step 1/9", 4}, {"lr 0.001", 1}, {"loss 0.5", 2}, {"3.0 s left", 3}};
  EXPECT_EQ(progress_line(fields, 0), "step 1/9  lr 0.001  loss 0.5  3.0 s left");
  EXPECT_EQ(progress_line(fields, 40), progress_line(fields, 0));
  EXPECT_EQ(progress_line(fields, 39), "step 1/9  loss 0.5  3.0 s left");
  EXPECT_EQ(progress_line(fields, 20), "step 1/9  3.0 s left");
  EXPECT_EQ(progress_line(fields, 3), "step 1/9");
}

TEST(Terminal, ColoursAreForTerminalsThatShowThem) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_tally(words_of(tiny("run", "cope")), folder).code, 0);
  const std::string coloured = "unset NO_COLOR; TERM=xterm";
  EXPECT_TRUE(holds(run_on_terminal("report run", folder, coloured).bytes, "\n\033[1m| encoding"));
  EXPECT_TRUE(holds(run_on_terminal("eval run", folder, coloured).bytes, "%\033[0m wrong ("));
  for (const char* before : {"export NO_COLOR=1", "export TERM=dumb"}) {
    EXPECT_FALSE(holds(run_on_terminal("report run", folder, before).bytes, "\033")) << before;
  }
  EXPECT_FALSE(holds(run_tally({"report", "run"}, folder).out, "\033"));
}

}  // namespace tally::testing::terminal_test
