// Norms of queries and keys in the commands.
#include <gtest/gtest.h>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace qk_norm_test {

TEST(QkNorm, GoesThroughTheCommands) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", parts = folder / "parts", kernels = folder / "kernels";
  const auto train = [&](const std::string& path, const std::vector<std::string>& more) {
    std::vector<std::string> options{"--model.qk-norm=head", "--model.norm=rms", "--optimiser.schedule=constant"};
    options.insert(options.end(), more.begin(), more.end());
    const Finished trained = run_tally(tiny_training(path, "rope", options), folder);
    EXPECT_EQ(trained.code, 0) << trained.err;
  };
  train(run, {});
  train(parts, {"--micro-batch=2"});
  train(kernels, {"--device=cuda-host"});
  const auto number_of = [](const std::string& path, const char* key) {
    return parse_json(metrics_of(path).back(), {}, "metrics").real(key);
  };
  EXPECT_NEAR(number_of(parts, "loss"), number_of(run, "loss"), 1e-5);
  EXPECT_NEAR(number_of(kernels, "loss"), number_of(run, "loss"), 1e-4);
  const Finished shown = run_tally({"describe", run + "/checkpoints/step-00000004.safetensors"}, folder);
  EXPECT_TRUE(holds(shown.out, "model.blocks.1.attention.query_norm.weight")) << shown.out;
  EXPECT_TRUE(holds(shown.out, "model.blocks.1.attention.key_norm.weight")) << shown.out;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"eval", run},
                                                {"inspect", run, "--text=w0i1r"},
                                                {"inspect", run},
                                                {"inspect", run, "--out", folder / "page.html"},
                                                {"resume", run, "--steps=6"}}) {
    const Finished done = run_tally(words, folder);
    EXPECT_EQ(done.code, 0) << words[0] << ": " << done.err;
  }
  const Finished other = run_tally({"resume", run, "--model.qk-norm=full", "--steps=8"}, folder);
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(holds(other.err, "the model of a run cannot change: model.qk-norm head -> full")) << other.err;
}

}  // namespace qk_norm_test
}  // namespace tally::testing
