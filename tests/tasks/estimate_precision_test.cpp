// The memory of a run with bf16 matmul operands, whose saved activations are bf16 too (core/precision.md).
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/device/backend.hpp"
#include "tasks/checks/estimate.hpp"
#include "tests/devices.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally {
namespace estimate_precision_test {

using testing::expect_exact;

// Several tiles of keys and of rows, with partial last tiles.
RunConfig small(const std::string& encoding, const std::vector<std::pair<std::string, std::string>>& more = {}) {
  RunConfig config = RunConfig::make("flip-flop", encoding, "quick");
  for (const auto& [name, value] :
       {std::pair{"task.length", "150"}, {"model.width", "32"}, {"batch", "2"}, {"eval-batch", "3"}}) {
    config.set(name, value);
  }
  for (const auto& [name, value] : more) config.set(name, value);
  return config;
}

// The estimate for the paper's model, without running it. In bf16, saved activations take half as much.
TEST(EstimateOfPrecision, AStepInBf16TakesThreeFifthsOfTheMemory) {
  set_matmul_precision(MatmulPrecision::bf16);
  for (const char* encoding : {"none", "cope", "path"}) expect_exact(small(encoding), encoding);
  set_default_device(testing::on_cuda_host);
  if (!testing::only_small_kernels(testing::on_cuda_host)) {
    expect_exact(small("cope", {{"batch", "1"}, {"eval-batch", "1"}, {"task.length", "80"}, {"model.layers", "1"}}),
                 "cope on cuda-host");
  }
  set_default_device({});
  const auto told = [](const RunConfig& config, MatmulPrecision precision) {
    set_matmul_precision(precision);
    return estimate_training(config, *config.make_task()).total();
  };
  for (const char* activation : {"gelu", "swiglu"}) {
    for (const char* encoding : {"none", "rope", "fox"}) {
      RunConfig config = RunConfig::make("flip-flop", encoding, "paper");
      config.set("model.activation", activation);
      const double ratio = told(config, MatmulPrecision::bf16) / told(config, MatmulPrecision::f32);
      EXPECT_LE(ratio, 0.6) << encoding << " " << activation;
      EXPECT_GE(ratio, 0.4) << encoding << " " << activation;
    }
  }
  set_matmul_precision(MatmulPrecision::f32);
}

}  // namespace estimate_precision_test
}  // namespace tally
