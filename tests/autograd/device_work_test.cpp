// Operations use few large kernel calls if the shapes allow them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "cuda/emulator/settings.hpp"
#include "cuda/runtime/context.hpp"
#include "tests/devices.hpp"

namespace tally::device_work_test {

Tensor numbers(const Shape& shape, double start) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < shape.numel(); ++n) values.push_back(std::sin(start + 1.7 * static_cast<double>(n)));
  return Tensor::from(values, shape);
}

struct Found {
  Tensor y, d_q, d_table;
};

// z = q e^T of heads that are neighbours in every row.
Found look_ups(const Device& device, const Shape& table_shape, std::uint64_t* calls) {
  Tensor rows = numbers({3, 5, 4, 8}, 1).to(device), table = numbers(table_shape, 2).to(device);
  set_requires_grad(rows);
  set_requires_grad(table);
  const std::uint64_t before = cuda_host::use_device(0).blas->products;
  const Tensor z = matmul(transpose(rows, 1, 2), transpose(table, -1, -2));
  *calls = cuda_host::use_device(0).blas->products - before;
  backward(z, numbers(z.shape(), 3).to(device));
  return {z.to(Device{}), gradient(rows).to(Device{}), gradient(table).to(Device{})};
}

TEST(DeviceWork, OneProductLooksUpTheTablesOfAllSequencesAndHeads) {
  for (const Shape& table : {Shape{7, 8}, Shape{4, 7, 8}}) {
    std::uint64_t calls = 0;
    const Found found = look_ups(testing::on_cuda_host, table, &calls);
    EXPECT_EQ(calls, 1u) << to_text(table);
    const Found expected = look_ups(Device{}, table, &calls);
    EXPECT_EQ(calls, 0u);
    EXPECT_EQ(to_text(found.y.shape()), "[3, 4, 5, 7]");
    const Tensor dense = numbers({3, 5, 4, 8}, 1).detached_transpose(1, 2).to_dense();
    const Tensor plain = matmul(dense, transpose(numbers(table, 2), -1, -2));
    const auto expect_near = [](const Tensor& x, const Tensor& y) {
      const std::vector<double> a = x.to_vector<double>(), b = y.to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], 1e-12) << n;
    };
    expect_near(found.y, plain);
    expect_near(expected.y, plain);
    expect_near(found.d_q, expected.d_q);
    expect_near(found.d_table, expected.d_table);
  }
}

// Few rows of many columns, many rows of few: each is cut in another way.
TEST(DeviceWork, SumsOfAnyForm) {
  for (const Shape& shape :
       {Shape{200, 5000}, Shape{3, 70, 4100}, Shape{9000, 40}, Shape{6, 300000}, Shape{30000, 2}}) {
    const Tensor x = numbers(shape, 1);
    for (const int axis : {0, shape.rank - 1}) {
      const std::vector<double> found = sum(x.to(testing::on_cuda_host), {axis}).to_vector<double>();
      const std::vector<double> expected = sum(x, {axis}).to_vector<double>();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t n = 0; n < found.size(); ++n) ASSERT_NEAR(found[n], expected[n], 1e-9) << to_text(shape) << n;
    }
  }
}

std::uint64_t threads_of(const std::function<void()>& work) {
  synchronize(testing::on_cuda_host);
  const std::uint64_t before = cuda_host::started_threads();
  work();
  synchronize(testing::on_cuda_host);
  return cuda_host::started_threads() - before;
}

// A thread, or a warp, for each column would leave most of a GPU idle.
TEST(DeviceWork, SumsOfColumnsAreFormedInParts) {
  const Tensor x = numbers({4096, 64}, 1).to(testing::on_cuda_host);
  EXPECT_GE(threads_of([&] { sum(x, {0}); }), 64u * 64u);
}

TEST(DeviceWork, ABlockOfRandomWordsIsDrawnForFourNumbers) {
  const Tensor x = numbers({4096}, 1).to(testing::on_cuda_host);
  EXPECT_LE(threads_of([&] { dropout(x, 0.5, {3, 1, 4}); }), 4096u / 2);
}

}  // namespace tally::device_work_test
