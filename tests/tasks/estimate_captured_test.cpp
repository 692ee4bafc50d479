// The memory estimate of a captured step.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tests/devices.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally {
namespace estimate_captured_test {

// A window needs constants that are copied to the device within a step: the first key of each query, in two layers, for
// the softmax and for gates.
TEST(EstimateOfACapturedStep, CountsTheConstantsOfItsGraph) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  set_default_device(testing::on_cuda_host);
  constexpr std::int64_t length = 40;
  for (const auto& [encoding, copies] : {std::pair{"none[window=20]", 1}, {"cope[window=20]", 2}}) {
    RunConfig config = RunConfig::make("flip-flop", encoding, "quick");
    for (const auto& [name, value] : {std::pair{"model.attention", "composed"},
                                      {"model.width", "16"},
                                      {"model.heads", "2"},
                                      {"model.layers", "2"},
                                      {"batch", "1"},
                                      {"eval-batch", "1"},
                                      {"optimiser.warmup", "0"}}) {
      config.set(name, value);
    }
    config.set("task.length", std::to_string(length));
    testing::expect_exact(config, encoding);
    const double replayed = estimate_training(config, *config.make_task()).total();
    config.set("steps", "1");  // this one is not captured
    const double called = estimate_training(config, *config.make_task()).total();
    EXPECT_EQ(replayed - called, 2.0 * copies * length * sizeof(double)) << encoding;
  }
  set_default_device({});
}

}  // namespace estimate_captured_test
}  // namespace tally
