// Every command refuses work that does not fit in memory, with an estimate, before it starts.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing::memory_test {

class Memory : public Program {
 protected:
  void expect_too_large(const std::string& line, const std::vector<std::string>& parts) {
    const Finished result = tally(line);
    EXPECT_EQ(result.code, 1) << line << result.out;
    // An estimate that overflows is reported as a lower bound.
    EXPECT_TRUE(holds(result.err, "[memory] this needs about ") || holds(result.err, "[memory] this needs more than "))
        << result.err;
    expect_parts(result.err, {", but there are "});
    expect_parts(result.err, parts);
    EXPECT_FALSE(holds(result.out, "|")) << "the check precedes the first result";
  }
};

// The configuration asks for a model of two hundred terabytes, while the checkpoints belong to a small one.
TEST_F(Memory, OfARunThatDoesNotFit) {
  done(tiny("run", "cope"));
  expect_too_large("inspect run --out out.safetensors --split=train --count=1000000000 --gradients",
                   {"activations", "gradients"});
  std::string text;
  for (int n = 0; n < 32'000; ++n) text += "w0r0";
  expect_too_large("inspect run --text " + text, {"activations"});
  done(tiny("squares", "none", "--model.attention=composed"));
  expect_too_large("eval squares --lengths=1000000", {});

  std::string config = file("run/config.json");
  for (const auto& [from, to] :
       {std::pair{"\"layers\": 2", "\"layers\": 1000"}, {"\"width\": 8", "\"width\": 65536"}}) {
    config.replace(config.find(from), std::string_view(from).size(), to);
  }
  write_file(folder_ / "run/config.json", config);
  const std::vector<std::string> lines{"eval run", "convert run out.safetensors", "inspect run --out out.safetensors",
                                       "inspect run --text=w0r"};
  for (const std::string& line : lines) expect_too_large(line, {"parameters", "checkpoint"});
  std::filesystem::remove_all(folder_ / "run/checkpoints");
  for (const std::string& line : lines) refused(line, "has no checkpoint any more", 1);
  EXPECT_FALSE(exists("out.safetensors"));
}

TEST_F(Memory, OfATrainingOrAMeasurementThatDoesNotFit) {
  for (const std::string what : {"step", "attention"}) {
    expect_too_large("bench " + what + " --length=1048576 --batch=1024", {"activations"});
  }
  expect_too_large("bench step --model.layers=1000 --model.width=65536", {"parameters", "optimiser"});
  // One of several combinations is too large.
  expect_too_large("bench attention --set length=8,1048576", {"activations"});
  const std::string train = "train run --task=flip-flop --pe=cope ";
  expect_too_large(train + "--model.width=65536 --model.layers=1000", {});
  expect_too_large(train + "--batch=1048576 --dry-run", {"activations"});
#ifndef TALLY_SANITIZED  // sanitizers reserve more than that
  // With an address space of 1 GiB, a model of 1.1 GiB does not fit on any machine.
  const Finished result =
      shell("ulimit -v 1048576; exec '" TALLY_RUNNER "' " + train + "--model.width 2048 --model.layers 2");
  EXPECT_EQ(result.code, 1);
  expect_parts(result.err, {"but there are 1 GiB"});
#endif
  EXPECT_FALSE(exists("run"));
}

}  // namespace tally::testing::memory_test
