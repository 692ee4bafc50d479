// Runs on a small prepared text, "data", in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {

namespace fs = std::filesystem;

class TextRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "texts");
    for (int n = 0; n < 40; ++n) {
      std::string text;
      for (int line = 0; line < 12; ++line) {
        text += formatted("func f{}(x int) int {{\n\treturn x + {}\n}}\n", (n * 7 + line * 3) % 50, n + line);
      }
      write_file(folder_ / formatted("texts/{}.go", n), text);
    }
    write_file(folder_ / "texts/wrong.go", "\xff\xfe no text");
    const Finished made = prepare("data", {"--vocabulary=300", "--validation-part=0.2", "--test-part=0.1"});
    ASSERT_EQ(made.code, 0) << made.err;
  }

  Finished prepare(const std::string& name, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"prepare", folder_ / name, folder_ / "texts", "--quiet"});
    return run_tally(more, folder_);
  }
  std::vector<std::string> training(const std::string& run, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"train",
                                   folder_ / run,
                                   "--task=text",
                                   "--data=" + (folder_ / "data"),
                                   "--preset=code-quick",
                                   "--pe=cope",
                                   "--length=16",
                                   "--model.layers=1",
                                   "--model.width=8",
                                   "--model.heads=2",
                                   "--batch=4",
                                   "--steps=12",
                                   "--eval-every=6",
                                   "--save-every=2",
                                   "--eval-count=3",
                                   "--optimiser.warmup=2",
                                   "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TemporaryFolder folder_;
};

}  // namespace tally::testing
