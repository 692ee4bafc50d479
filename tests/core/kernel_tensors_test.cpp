// Kernels that take all parameters in one call. Some parameters are several tiles, one tile or nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>

#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::kernel_tensors_test {

const std::vector<std::int64_t> sizes{40'000, 7, 0, 200'003, 16'384};

std::deque<Array<float>> arrays(int seed) {
  std::deque<Array<float>> all;
  for (const std::int64_t size : sizes) all.emplace_back(Shape{size}, seed++);
  return all;
}
template <class T>
std::vector<View> views(const std::deque<Array<T>>& all) {
  std::vector<View> found;
  for (const Array<T>& one : all) found.push_back(one.view);
  return found;
}

TEST(KernelOfTensors, SquaredNormOfEach) {
  const std::deque<Array<float>> x = arrays(1);
  std::deque<Array<double>> norms;
  for (std::size_t i = 0; i < sizes.size(); ++i) norms.emplace_back(Shape{1});
  const int threads = thread_count();
  std::vector<double> alone;
  for (const int team : {1, 3}) {
    set_thread_count(team);
    cpu::squared_norm(views(norms), views(x), Workspace(cpu::squared_norm_workspace(views(x)), {}).data());
    std::vector<double> found;
    for (const Array<double>& norm : norms) found.push_back(norm.values()[0]);
    if (team == 1) alone = found;
    EXPECT_EQ(found, alone);
  }
  set_thread_count(threads);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    double expected = 0;
    for (const float value : x[i].values()) expected += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(norms[i].values()[0], expected, 1e-12 * expected) << sizes[i];
  }
}

// Each by its own hyperparameters; the first of the large ones is left as it is, as its scale is no number.
TEST(KernelOfTensors, StepsOfEach) {
  const int threads = thread_count();
  for (const int team : {1, 3}) {
    set_thread_count(team);
    const std::deque<Array<float>> before = arrays(1), parameters = arrays(1), gradients = arrays(7);
    const std::vector<View> no_momentum(sizes.size());
    std::deque<Array<float>> rows;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Array<float>& row = rows.emplace_back(Shape{4});
      const float scale = i == 0 ? std::numeric_limits<float>::quiet_NaN() : 2.0F;
      const std::vector<float> values{scale, 0, 0, 0.25F * static_cast<float>(i + 1)};
      for (std::size_t n = 0; n < values.size(); ++n) row.view.as<float>()[n] = values[n];
    }
    cpu::sgd_step(views(parameters), no_momentum, views(gradients), views(rows));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const float lr = 0.25F * static_cast<float>(i + 1);
      const std::vector<float> old = before[i].values(), g = gradients[i].values(), found = parameters[i].values();
      for (std::size_t n = 0; n < found.size(); ++n) {
        const float expected = i == 0 ? old[n] : old[n] - lr * (2 * g[n]);
        ASSERT_NEAR(found[n], expected, 1e-6 * (std::abs(old[n]) + std::abs(lr * 2 * g[n]))) << i << " at " << n;
      }
    }
  }
  set_thread_count(threads);
}

}  // namespace tally::kernel_tensors_test
