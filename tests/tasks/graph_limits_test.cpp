// The kernels of a captured training step, with the limits of cuda/runtime/graph_limits.json. The model is the paper's
// with fewer columns and shorter texts, which does not change the number of kernels: sums over 128 tokens or more take
// two. cuBLAS on a GPU may need more than one kernel for a matmul.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/json.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/devices.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::graph_limits_test {

// The size of the second step, which is captured.
GraphSize size_of_step(const std::string& encoding) {
  const RunConfig config =
      testing::with(RunConfig::make("flip-flop", encoding, "paper"), "task.length=64 model.width=32 batch=4");
  const std::unique_ptr<Task> task = config.make_task();
  const std::unique_ptr<SequenceModel> model = config.make_model(*task);
  const std::unique_ptr<Optimizer> optimizer = Optimizer::make(config.optimiser, model->parameters());
  TrainStep step(*model, *optimizer, 1);
  for (std::int64_t n = 1; n <= 2; ++n) step(collate(examples_of(*task, "train", 4 * n, 4 * n + 4)), n, 10);
  check(step.graph() != nullptr, "graph", "the step was not captured");
  return step.graph()->size();
}

class GraphLimits : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_matmul_precision(MatmulPrecision::f32);
    OnDevice::TearDown();
  }
};

TEST_P(GraphLimits, HoldForTheKernelsOfAStep) {
  const char* const path = "cuda/runtime/graph_limits.json";
  const JsonValue limits = read_json(formatted("{}/{}", TALLY_SOURCE_DIR, path));
  for (const JsonValue& limit : limits.elements()) {
    const std::string& encoding = limit.string("pe");
    const std::string& precision = limit.string("precision");
    // GPUs with 64 KiB of shared memory a block have no tensor cores for bf16, and run other kernels.
    const char* const shared = std::getenv("TALLY_CUDA_SHARED");
    if (precision == "bf16" && shared != nullptr && std::string_view(shared) == "64") continue;
    set_matmul_precision(precision == "bf16" ? MatmulPrecision::bf16 : MatmulPrecision::f32);
    const GraphSize size = size_of_step(encoding);
    const std::int64_t most = limit.integer("kernels");
    const std::string found = formatted("A captured step with pe {} in {} has {} kernels; its limit in {} is {}. ",
                                        encoding, precision, size.kernels, path, most);
    EXPECT_LE(size.kernels, most) << found << "Each kernel costs a launch: do its work in another kernel. If it must "
                                  << "be separate, raise the limit and give the reason in the commit message.";
    EXPECT_GE(size.kernels, most) << found << "Lower the limit to this number, so that it cannot rise again unnoticed.";
    EXPECT_EQ(size.allocations, 0) << "memory of captured work is from cuda/runtime/arena.hpp";
  }
}

INSTANTIATE_TEST_SUITE_P(CudaHost, GraphLimits, ::testing::Values(testing::on_cuda_host));

}  // namespace tally::graph_limits_test
