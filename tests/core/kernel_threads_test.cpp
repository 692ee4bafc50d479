// Kernels that add up over tiles: the same bits for any number of threads.
#include <gtest/gtest.h>

#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::kernel_threads_test {

TEST(KernelThreads, SameBitsForAnyThreadCount) {
  const int threads = thread_count();
  const Shape shape{4, 300, 300};
  Array<float> x(shape), d(shape, 2), weight({300}, 3);
  std::vector<std::vector<std::uint8_t>> results[2];
  const View rows{x.view.data, DType::f32, {1200, 300}, dense_strides({1200, 300})};
  View d_rows = rows;
  d_rows.data = d.view.data;
  for (const int run : {0, 1}) {
    set_thread_count(run == 0 ? 1 : 3);
    const auto keep = [&](const auto& array) { results[run].push_back(array.bytes); };
    Array<float> y(shape), d_x(shape), columns({1, 1, 300}), all({1, 1, 1}), mean({1200}), rstd({1200});
    const Workspace scratch(cpu::norm_backward_workspace(rows), {});
    Array<float> d_weight({300}), d_bias({300}), shared({4, 1, 300});
    cpu::softmax(y.view, x.view, true);
    keep(y);
    cpu::reduce(ReduceOp::sum, columns.view, x.view, Workspace(cpu::reduce_workspace(columns.view, x.view), {}).data());
    keep(columns);
    cpu::reduce(ReduceOp::sum, all.view, x.view, Workspace(cpu::reduce_workspace(all.view, x.view), {}).data());
    keep(all);
    View y_rows = rows, d_x_rows = rows;
    y_rows.data = y.view.data;
    d_x_rows.data = d_x.view.data;
    cpu::layer_norm(y_rows, mean.view, rstd.view, {}, rows, weight.view, weight.view, 1e-5);
    cpu::layer_norm_backward(d_x_rows, {}, d_weight.view, d_bias.view, d_rows, rows, weight.view, mean.view, rstd.view,
                             false, scratch.data());
    keep(y);
    keep(d_x);
    keep(d_weight);
    keep(d_bias);
    cpu::read_distance_backward(shared.view, d.view, true);
    keep(shared);
    Array<double> norm({1});
    cpu::squared_norm({&norm.view, 1}, {&x.view, 1}, Workspace(cpu::squared_norm_workspace({&x.view, 1}), {}).data());
    keep(norm);
  }
  set_thread_count(threads);
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace tally::kernel_threads_test
