// Attention on GPUs with less shared memory, as set on cuda-host: wide heads are computed in parts, and the results
// keep their bits. An error names the required memory if a head does not fit at all.
#include <gtest/gtest.h>

#include "cuda/emulator/settings.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally::shared_memory_test {

using testing::compute;
using testing::Outcome;
using testing::ShapeCase;
using testing::Sizes;

class SharedMemory : public ::testing::Test {
 protected:
  void SetUp() override { set_default_device(testing::on_cuda_host); }
  void TearDown() override {
    cuda_host::set_settings(before_);
    set_matmul_precision(MatmulPrecision::f32);
    set_default_device({});
  }
  // Empty where it was refused, with what.
  static std::pair<Outcome, std::string> outcome_with(int kib, const ShapeCase& one, const Sizes& sizes, DType dtype) {
    cuda_host::set_settings({.shared_kib = kib});
    try {
      return {compute(one, sizes, dtype, true, 0.25), ""};
    } catch (const Error& error) {
      return {{}, error.what()};
    }
  }
  static std::vector<double> numbers(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }
  static void expect_same_bits(const Outcome& found, const Outcome& expected) {
    EXPECT_EQ(numbers(found.output), numbers(expected.output));
    for (const auto& [name, value] : expected.gradients) {
      EXPECT_EQ(numbers(found.gradients.at(name)), numbers(value)) << name;
    }
  }

 private:
  cuda_host::Settings before_ = cuda_host::settings();
};

TEST_F(SharedMemory, DecidesNoBits) {
  std::vector<std::pair<Sizes, DType>> forms{{{1, 1, 20, 64, 64}, DType::f32}};
  if (!testing::only_small_kernels(default_device())) {
    forms.insert(forms.end(), {{{1, 1, 35, 136, 20}, DType::f32}, {{1, 1, 20, 40, 20}, DType::f64}});
  }
  std::size_t refused = 0;
  const std::set<std::string> others{"plain", "table", "segments", "stick", "pair_down", "table_and_every_bias"};
  for (const ShapeCase& one : testing::shape_cases()) {
    if (!others.contains(one.name) && !one.name.ends_with("own_gates")) continue;
    for (const auto& [sizes, dtype] : forms) {
      const Outcome expected = outcome_with(227, one, sizes, dtype).first;
      for (const int kib : {99, 64}) {
        SCOPED_TRACE(formatted("{} d {} with {} KiB", one.name, sizes.width, kib));
        const auto [found, refusal] = outcome_with(kib, one, sizes, dtype);
        if (kib == 99 || refusal.empty()) {
          ASSERT_EQ(refusal, "");
          expect_same_bits(found, expected);
        } else {
          ++refused;
          EXPECT_NE(refusal.find(" KiB of shared memory for this score, and the device has 64"), std::string::npos)
              << refusal;
        }
      }
    }
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace tally::shared_memory_test
