// Runs on a small prepared text, "data", in a temporary folder.
#pragma once

#include "tests/runner/run_files.hpp"

namespace tally::testing {

class TextRuns : public Program {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "texts");
    for (int n = 0; n < 40; ++n) {
      std::string text;
      for (int line = 0; line < 12; ++line) {
        text += formatted("func f{}(x int) int {{\n\treturn x + {}\n}}\n", (n * 7 + line * 3) % 50, n + line);
      }
      write_file(folder_ / formatted("texts/{}.go", n), text);
    }
    write_file(folder_ / "texts/wrong.go", "\xff\xfe no text");
    done("prepare data texts --quiet --vocabulary=300 --validation-part=0.2 --test-part=0.1");
  }

  static std::string training(const std::string& run, const std::string& more = "") {
    return "train " + run +
           " --task=text --data=data --preset=code-quick --length=16 --model.layers=1 --model.width=8 --model.heads=2"
           " --batch=4 --steps=12 --eval-every=6 --save-every=2 --eval-count=3 --optimiser.warmup=2 --quiet " +
           (holds(more, "--pe=") ? "" : "--pe=cope ") + more;
  }
  // A run that is killed after its second checkpoint.
  void train_and_kill(const std::string& run, const std::string& more = "") {
    const pid_t process = start(training(run, more), run);
    EXPECT_TRUE(comes_true([&] { return names_of_checkpoints(folder_ / run).size() >= 2; }));
    send_signal(process, SIGKILL);
    finish(process, run);
  }
};

}  // namespace tally::testing
