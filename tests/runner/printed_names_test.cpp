// Untrusted names with control characters never reach the terminal unescaped.
#include <gtest/gtest.h>

#include "tasks/print/printable.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace printed_names_test {

const std::string evil = "na\x1b[31mme\nnext\x9b\xff";
const std::string escaped = "na\\x1b[31mme\\nnext\\x9b\\xff";

// Whether the only control characters are line ends.
bool is_safe(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (' ' <= c && c <= '~'); });
}

TEST(PrintedNames, ControlCharactersAreEscapedOnce) {
  EXPECT_EQ(printable(evil), escaped);
  EXPECT_EQ(printable(printable(evil)), escaped);
  EXPECT_EQ(printable("C:\\x, äöü"), "C:\\x, äöü");
  EXPECT_EQ(printable("\\\x07\\"), "\\\\x07\\");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(""), "");
}

TEST(PrintedNames, InErrorsOfTheCommandLine) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{evil},
        {"train", run, "--task=" + evil, "--pe=cope"},
        {"train", run, "--task=flip-flop", "--pe=" + evil},
        {"train", run, "--task=flip-flop", "--pe=cope", "--preset=" + evil},
        {"train", run, "--task=flip-flop", "--pe=cope", "--" + evil + "=3"},
        {"train", run, "--task=flip-flop", "--pe=cope", "--optimiser.name=" + evil},
        {"train", run, "--task=flip-flop", "--pe=cope", "--steps=" + evil},
        {"train", run, "--task=flip-flop", "--pe=cope", "--threads=" + evil},
        {"train", run, "--config=" + (folder / evil)},
        {"eval", folder / evil},
        {"resume", folder / evil},
        {"report", folder / evil},
        {"inspect", folder / evil},
        {"describe", evil},
        {"describe", "flip-flop", "--sequences=1", "--split=" + evil},
        {"sweep", run, "--task=flip-flop", "--pe=cope", "--set", evil}}) {
    const Finished result = run_tally(words, folder);
    EXPECT_GT(result.code, 0) << words.back();
    EXPECT_TRUE(is_safe(result.err)) << words[0] << "\n" << result.err;
    EXPECT_TRUE(is_safe(result.out)) << words[0] << "\n" << result.out;
    EXPECT_TRUE(holds(result.err, "na\\x1b[31mme\\n")) << words[0] << "\n" << result.err;
  }
}

TEST(PrintedNames, OfKeysInAConfiguration) {
  const TemporaryFolder folder;
  write_file(folder / "config.json", R"({"task": {"name": "flip-flop"}, "pe": "cope", "mo\u001b[2Jdel": {}})");
  const Finished result = run_tally({"train", folder / "run", "--config", folder / "config.json"}, folder);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(holds(result.err, "unknown key 'mo\\x1b[2Jdel'")) << result.err;
}

TEST(PrintedNames, OfRunsAndOutputs) {
  const TemporaryFolder folder;
  const std::string name = "r\x1b[31mun", run = folder / name;
  std::vector<std::string> words = tiny_training(run, "none");
  std::erase(words, "--quiet");
  const std::vector<std::vector<std::string>> commands{
      words,
      {"eval", run},
      {"resume", run},
      {"report", run, "--out", run + ".svg"},
      {"convert", run, run + ".safetensors"},
      {"inspect", run, "--out", run + ".safetensors"},
      {"describe", "flip-flop", "--sequences=2", "--out", run + ".txt"},
      {"describe", run + ".safetensors"}};
  for (const std::vector<std::string>& command : commands) {
    const Finished result = run_tally(command, folder);
    EXPECT_EQ(result.code, 0) << command[0] << "\n" << result.err;
    EXPECT_TRUE(is_safe(result.out + result.err)) << command[0] << "\n" << result.out << result.err;
  }
}

}  // namespace printed_names_test
}  // namespace tally::testing
