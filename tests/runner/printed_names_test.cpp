// Untrusted names with control characters never reach the terminal unescaped.
#include <gtest/gtest.h>

#include "tasks/print/printable.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::printed_names_test {

const std::string evil = "na\x1b[31mme\nnext\x9b\xff";
const std::string escaped = "na\\x1b[31mme\\nnext\\x9b\\xff";

// Whether the only control characters are line ends.
bool is_safe(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (' ' <= c && c <= '~'); });
}

TEST(Printable, ControlCharactersAreEscapedOnce) {
  EXPECT_EQ(printable(evil), escaped);
  EXPECT_EQ(printable(printable(evil)), escaped);
  EXPECT_EQ(printable("C:\\x, äöü"), "C:\\x, äöü");
  EXPECT_EQ(printable("\\\x07\\"), "\\\\x07\\");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(""), "");
}

class PrintedNames : public Program {};

TEST_F(PrintedNames, InErrorsOfTheCommandLine) {
  const std::string train = "train run --task=flip-flop --pe=cope ";
  for (const std::string& line :
       {evil, "train run --pe=cope --task=" + evil, "train run --task=flip-flop --pe=" + evil,
        train + "--preset=" + evil, train + "--" + evil + "=3", train + "--optimiser.name=" + evil,
        train + "--steps=" + evil, train + "--threads=" + evil, "train run --config=" + evil, "eval " + evil,
        "resume " + evil, "report " + evil, "inspect " + evil, "describe " + evil,
        "describe flip-flop --sequences=1 --split=" + evil, "sweep run --task=flip-flop --pe=cope --set " + evil}) {
    const Finished result = tally(line);
    EXPECT_GT(result.code, 0) << line;
    EXPECT_TRUE(is_safe(result.err + result.out)) << line << "\n" << result.err;
    EXPECT_TRUE(holds(result.err, "na\\x1b[31mme\\n")) << line << "\n" << result.err;
  }
  write_file(folder_ / "config.json", R"({"task": {"name": "flip-flop"}, "pe": "cope", "mo\u001b[2Jdel": {}})");
  refused("train run --config config.json", "unknown key 'mo\\x1b[2Jdel'");
}

TEST_F(PrintedNames, OfRunsAndOutputs) {
  const std::string run = "r\x1b[31mun";
  for (const std::string& line :
       {loud(tiny(run, "none")), "eval " + run, "resume " + run, "report " + run + " --out " + run + ".svg",
        "convert " + run + " " + run + ".safetensors", "inspect " + run + " --out " + run + ".safetensors",
        "describe flip-flop --sequences=2 --out " + run + ".npy", "describe " + run + ".safetensors"}) {
    const Finished result = tally(line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.err;
    EXPECT_TRUE(is_safe(result.out + result.err)) << line << "\n" << result.out << result.err;
  }
}

}  // namespace tally::testing::printed_names_test
