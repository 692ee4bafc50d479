// Sums down the queries of pair policies: tiles of rows that follow each other on the CPU, and that run side by side on
// a GPU, forward and backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "core/cpu/parallel.hpp"
#include "nn/attention.hpp"
#include "tests/devices.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/score_cases.hpp"
#include "tests/nn/share.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::testing {
namespace down_test {

class Down : public OnDevice {};
TALLY_ON_EVERY_DEVICE(Down);

// Of tiles of rows and of keys; those of a GPU are smaller.
std::vector<std::int64_t> edges() {
  if (default_device() == Device{}) return {1, 2, 63, 64, 65, 129, 200};
  if (only_small_kernels(default_device())) return {1, 33};
  return {1, 2, 16, 17, 31, 32, 33, 65, 97, 129};
}

TEST_P(Down, EqualsTheComposedFormAtTheEdgesOfTiles) {
  for (const ShapeCase& one : down_cases()) {
    for (const std::int64_t length : edges()) {
      SCOPED_TRACE(concat(one.name, " T ", length));
      const Sizes sizes = default_device() == Device{} ? Sizes{2, 4, length, 5, 3, 2} : Sizes{1, 2, length, 5, 3, 2};
      expect_equal(compute(one, sizes, DType::f64, true), compute(one, sizes, DType::f64, false));
    }
  }
}

TEST(DownOnCpu, GivesTheSameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  for (const ShapeCase& one : down_cases()) {
    SCOPED_TRACE(one.name);
    const Sizes sizes{1, 4, 300, 8, 8, 2};
    set_thread_count(1);
    const Outcome alone = compute(one, sizes, DType::f32, true, 0.25);
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      const Outcome shared = compute(one, sizes, DType::f32, true, 0.25);
      EXPECT_EQ(shared.output.to_vector<float>(), alone.output.to_vector<float>());
      for (const auto& [name, value] : alone.gradients) {
        EXPECT_EQ(shared.gradients.at(name).to_vector<float>(), value.to_vector<float>()) << name;
      }
    }
  }
  set_thread_count(before);
}

// The sum of the results times numbers of their own, with one number of one leaf moved.
double moved_result(const ShapeCase& one, const Sizes& sizes, const std::string& moved, std::size_t element,
                    double by) {
  const NoGrad only_the_value;
  Inputs inputs = make_inputs(one, sizes, DType::f64, [&](const std::string& name, const Shape& shape, double wide) {
    std::vector<double> values = normal_tensor(name, shape, wide).to_vector<double>();
    if (name == moved) values[element] += by;
    return Tensor::from(values, shape, Device{});
  });
  const Tensor output = tiled_attention(inputs.operands, inputs.score);
  return sum(output * normal_tensor("d_output", output.shape())).to_vector<double>().front();
}

// Away from kinks, where the policies have them, by numbers that are not beside one.
TEST(DownOnCpu, HasTheDerivativesOfCentralDifferences) {
  const double step = 1e-5;
  for (const ShapeCase& one : down_cases()) {
    SCOPED_TRACE(one.name);
    const Sizes sizes{1, 2, 70, 3, 2};
    const Outcome found = compute(one, sizes, DType::f64, true);
    for (const auto& [name, derivative] : found.gradients) {
      const std::vector<double> values = derivative.to_vector<double>();
      for (std::size_t element = 0; element < values.size(); element += values.size() / 5 + 1) {
        const double difference =
            (moved_result(one, sizes, name, element, step) - moved_result(one, sizes, name, element, -step)) /
            (2 * step);
        EXPECT_NEAR(values[element], difference, 2e-7 * std::max(1.0, largest(derivative))) << name << " " << element;
      }
    }
  }
}

// Sums of thousands of gates lose nothing from tile to tile: those of f32 are as near those of f64 as plain attention.
TEST_P(Down, KeepsItsPrecisionOverManyTiles) {
  if (only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  const Sizes sizes{1, 1, takes_a_share() ? 600 : 2000, 8, 8};
  const ShapeCase one = down_cases().back();
  const Outcome exact = compute(one, sizes, DType::f64, true), found = compute(one, sizes, DType::f32, true);
  EXPECT_LE(largest_difference(found.output, exact.output), 1e-4 * largest(exact.output));
  for (const auto& [name, value] : exact.gradients) {
    EXPECT_LE(largest_difference(found.gradients.at(name), value), 2e-4 * largest(value)) << name;
  }
}

TEST_P(Down, RefusesRowsWithoutThoseBeforeThem) {
  Score score;
  score.set_scan(Pair{&blamed_policy()});
  const AttentionOperands in{normal_tensor("q", {1, 2, 3, 4}), normal_tensor("k", {1, 2, 5, 4}),
                             normal_tensor("v", {1, 2, 5, 4}), 0.5};
  EXPECT_NE(error_of([&] {
              tiled_attention(in, score);
            }).find("the policy 'blamed' sums down the queries, of which all must be there: got 3 for 5 keys"),
            std::string::npos);
}

// A policy that was built without CUDA.
const PairPolicy& only_for_the_cpu() {
  static const PairPolicy policy = [] {
    PairPolicy blamed = blamed_policy();
    blamed.cuda_host = blamed.cuda = nullptr;
    return blamed;
  }();
  return policy;
}

TEST(DownWithoutKernels, IsRefusedInTilesOfAGpu) {
  set_default_device(on_cuda_host);
  Score score;
  score.set_scan(Pair{&only_for_the_cpu()});
  const auto part = [](const char* name) { return normal_tensor(name, {1, 1, 3, 4}).to(on_cuda_host); };
  const AttentionOperands in{part("q"), part("k"), part("v"), 0.5};
  const std::string error = error_of([&] { tiled_attention(in, score); });
  set_default_device({});
  EXPECT_NE(error.find("'blamed' is not compiled for cuda-host: composed attention has it there"), std::string::npos)
      << error;
}

// An encoding with such a policy, by which every token that finds a key useless tells those after it.
class Blames final : public Encoding {
 public:
  Blames() { traits.scans = traits.sums_down = traits.by_policy = true; }
  void score(const AttentionInput&, Score& score) const override { score.set_scan(Pair{&only_for_the_cpu()}); }
};

TEST(DownWithoutKernels, IsComposedOnAGpuByItself) {
  const Tensor x = normal_tensor("x", {2, 9, 8});
  const auto outcome = [&](Device device) {
    set_default_device(device);
    const Initializer start(1, StartValues::fan_in, DType::f64, device);
    const Attention attention(start, {8, 2, 2, 4}, 0, 1);
    LayerEncoding layer;
    layer.push_back({0, 2, 0, 2, std::make_unique<Blames>()});
    EXPECT_FALSE(attention.continues(layer));
    const NoGrad only_values;
    const Tensor y = attention.forward(x.to(device), layer, {}).to(Device{});
    set_default_device({});
    return y;
  };
  EXPECT_LE(largest_difference(outcome(on_cuda_host), outcome({})), 1e-12);
}

// Of a step of a small model.
double peak_bytes(const EncodingChoice& choice, const std::string& form, std::int64_t length) {
  const Device device = default_device();
  const auto model = make_small_model(choice, form, length);
  const Tensor tokens = some_tokens(length);
  reset_peak_memory(device);
  const std::uint64_t before = memory_counters(device).live_bytes;
  backward(sum(model->forward(tokens)));
  return static_cast<double>(memory_counters(device).peak_bytes - before);
}

std::vector<EncodingChoice> with_each_selector() {
  std::vector<EncodingChoice> choices;
  for (const std::string selector : {"first", "own", "projection"}) {
    choices.push_back(EncodingChoice::parse("selective"));
    choices.back().set_option("selector", selector);
  }
  return choices;
}

TEST(DownOnCpu, TakesMemoryInProportionToTheLength) {
  for (const EncodingChoice& choice : with_each_selector()) {
    EXPECT_LE(peak_bytes(choice, "tiled", 2048), 4.5 * peak_bytes(choice, "tiled", 512)) << choice.text();
  }
}

// What is carried are two numbers for 32 pairs, while backward runs; counted, as there may be no GPU.
TEST(DownOnAGpu, TakesLittleMemoryBesideTheComposedForm) {
  set_default_device(meta_of(on_cuda_host));
  for (const EncodingChoice& choice : with_each_selector()) {
    EXPECT_LE(peak_bytes(choice, "tiled", 4096), peak_bytes(choice, "composed", 4096) / 16) << choice.text();
  }
  set_default_device({});
}

}  // namespace down_test
}  // namespace tally::testing
