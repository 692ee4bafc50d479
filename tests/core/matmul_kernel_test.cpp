// Matrix products of the CPU: every order of the operands, every way of cutting, any number of threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/cpu/matmul/matmul.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/error.hpp"
#include "tests/core/matrices.hpp"

namespace tally::matmul_kernel_test {

using testing::bias_of;
using testing::Matrices;
using testing::Order;

// The f32 microkernel, or else OpenBLAS, for any shape.
enum class By { choice, microkernel, blas };

void multiply(View c, View a, View b, View bias, double alpha, bool add = false, By by = By::choice,
              const View& onto = {}) {
  const Epilogue epilogue{.alpha = alpha, .bias = bias, .residual = add ? c : onto};
  if (by == By::choice) return cpu::matmul(c, a, b, epilogue, Workspace(cpu::matmul_workspace(c, a), {}).data());
  const cpu::Microkernel* const kernel = by == By::microkernel ? &cpu::f32_microkernel() : nullptr;
  cpu::matmul_by(kernel, c, a, b, epilogue, Workspace(cpu::matmul_workspace_by(kernel, c, a), {}).data());
}

struct Product {
  std::int64_t batch, m, n, k;
  Order order_a = Order::rows, order_b = Order::rows, order_c = Order::rows;
  std::int64_t pad = 0;
  bool bias = false;
  double alpha = 1.0;
  bool add = false;
  By by = By::choice;
  bool onto = false;  // a residual that is not c
};

std::string describe(const Product& p) {
  const auto letter = [](Order order) { return order == Order::rows ? "r" : "c"; };
  return formatted("{} x {}x{}x{} orders {}{}{} pad {}{}{}{}{}", p.batch, p.m, p.n, p.k, letter(p.order_a),
                   letter(p.order_b), letter(p.order_c), p.pad, p.bias ? " bias" : "", p.add ? " add" : "",
                   p.by == By::choice ? ""
                   : p.by == By::blas ? " by BLAS"
                                      : " by the microkernel",
                   p.onto ? " onto" : "");
}

// Against sums in long double, to the rounding that K additions can make at most.
template <class T>
void expect_right(const Product& p) {
  SCOPED_TRACE(describe(p));
  Matrices<T> a(1, p.batch, p.m, p.k, p.order_a, p.pad), b(2, p.batch, p.k, p.n, p.order_b, p.pad), bias(3, 1, 1, p.n);
  Matrices<T> c(4, p.batch, p.m, p.n, p.order_c, p.pad);
  const View bias_view = p.bias ? bias_of(bias.data, p.n) : View{};
  Matrices<T> before = c;
  Matrices<T> onto(5, 1, p.m, p.n, Order::rows, 2 * p.pad);
  multiply(c.view, a.view, b.view, bias_view, p.alpha, p.add, p.by, p.onto ? onto.view : View{});

  const double epsilon = std::numeric_limits<T>::epsilon();
  std::int64_t wrong = 0;
  for (std::int64_t matrix = 0; matrix < p.batch; ++matrix) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        long double sum = 0, size = 0;
        const auto add = [&](long double term) { sum += term, size += std::fabs(term); };
        for (std::int64_t l = 0; l < p.k; ++l) {
          add(static_cast<T>(p.alpha) * static_cast<long double>(a.at(matrix, i, l)) * b.at(matrix, l, j));
        }
        if (p.bias) add(bias.data[static_cast<std::size_t>(j)]);
        if (p.add) add(before.at(matrix, i, j));
        if (p.onto) add(onto.at(0, i, j));
        const long double error = std::fabs(c.at(matrix, i, j) - sum);
        wrong += !(error <= static_cast<long double>(p.k + 4) * epsilon * size);
        c.at(matrix, i, j) = std::numeric_limits<T>::quiet_NaN();
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  std::int64_t overwritten = 0;  // only gaps are left
  for (const T value : c.data) overwritten += !std::isnan(value);
  EXPECT_EQ(overwritten, 0) << "elements between the rows of c";
}

template <class T>
class MatmulKernel : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(MatmulKernel, Floats);

TYPED_TEST(MatmulKernel, EveryOrderOfEveryMatrix) {
  for (const Order a : {Order::rows, Order::columns}) {
    for (const Order b : {Order::rows, Order::columns}) {
      for (const Order c : {Order::rows, Order::columns}) {
        for (const std::int64_t pad : {0, 3}) {
          for (const auto& [bias, add] : {std::pair{false, false}, {true, false}, {false, true}}) {
            Product p{.batch = 2, .m = 13, .n = 7, .k = 10, .order_a = a, .order_b = b, .order_c = c, .pad = pad};
            p.bias = bias;
            p.alpha = 0.75;
            p.add = add;
            expect_right<TypeParam>(p);
          }
        }
      }
    }
  }
}

TYPED_TEST(MatmulKernel, SidesOfOne) {
  for (const Order order : {Order::rows, Order::columns}) {
    for (const Order order_c : {Order::rows, Order::columns}) {
      for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
               {1, 1, 1}, {1, 9, 5}, {9, 1, 5}, {9, 5, 1}, {1, 1, 9}, {1, 9, 1}, {9, 1, 1}}) {
        Product p{.batch = 2, .m = m, .n = n, .k = k, .order_a = order, .order_b = order, .order_c = order_c};
        p.pad = 2;
        p.bias = true;
        expect_right<TypeParam>(p);
      }
    }
  }
}

// Cut by rows, by columns, by both, along K, with remainders, and many small ones handed out together.
const std::vector<Product>& cut_products() {
  static const std::vector<Product> products = {
      {.batch = 1, .m = 513, .n = 65, .k = 31},
      {.batch = 1, .m = 31, .n = 2049, .k = 17, .bias = true},
      {.batch = 1, .m = 530, .n = 1030, .k = 9, .bias = true},
      {.batch = 1, .m = 2100, .n = 33, .k = 20, .order_b = Order::columns, .bias = true},
      {.batch = 1, .m = 33, .n = 2100, .k = 20, .order_c = Order::columns, .bias = true},
      {.batch = 1, .m = 20, .n = 24, .k = 4099, .order_a = Order::columns},
      {.batch = 1, .m = 7, .n = 5, .k = 2500, .order_c = Order::columns, .bias = true, .alpha = 0.5},
      {.batch = 3, .m = 9, .n = 11, .k = 3001, .order_a = Order::columns, .bias = true},
      {.batch = 40, .m = 33, .n = 47, .k = 21, .order_b = Order::columns},
      {.batch = 300, .m = 5, .n = 3, .k = 8, .order_a = Order::columns, .alpha = 0.125},
      {.batch = 1, .m = 530, .n = 1030, .k = 9, .add = true},
      {.batch = 3, .m = 9, .n = 11, .k = 3001, .order_c = Order::columns, .alpha = 0.5, .add = true},
      {.batch = 2, .m = 5, .n = 3, .k = 0, .add = true},
  };
  return products;
}

TYPED_TEST(MatmulKernel, EveryWayOfCutting) {
  for (const Product& product : cut_products()) expect_right<TypeParam>(product);
}

// A residual that is added as the result is written: by whole rows, in parts of long sums, with a bias.
TYPED_TEST(MatmulKernel, AddsResiduals) {
  for (const bool bias : {false, true}) {
    for (const By by : {By::microkernel, By::blas}) {
      if (by == By::microkernel && !std::is_same_v<TypeParam, float>) continue;
      for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
               {197, 65, 31}, {530, 1030, 9}, {9, 11, 4500}, {7, 5, 0}, {3, 64, 8}}) {
        Product p{.batch = 1, .m = m, .n = n, .k = k, .order_b = Order::columns, .pad = 3, .bias = bias, .alpha = 0.5};
        p.by = by;
        p.onto = true;
        expect_right<TypeParam>(p);
      }
    }
  }
}

// Whole vectors of columns and not, one step along k and several, split sums, each by the microkernel and by OpenBLAS.
TEST(MatmulF32, EveryWayOfCutting) {
  std::vector<Product> products = cut_products();
  for (const std::int64_t n : {1, 15, 16, 33, 48, 65, 80, 130}) {
    for (const Order b : {Order::rows, Order::columns}) {
      products.push_back({.batch = 1, .m = 197, .n = n, .k = 64, .order_b = b, .bias = true});
      products.push_back({.batch = 1, .m = 37, .n = n, .k = 1100, .order_b = b, .pad = 3, .alpha = 0.5, .add = true});
      products.push_back({.batch = 1, .m = 53, .n = n, .k = 700, .order_a = Order::columns, .order_b = b, .pad = 1});
      products.push_back({.batch = 1, .m = 13, .n = n, .k = 2049, .order_a = Order::columns, .order_b = b});
      products.push_back({.batch = 1, .m = 1, .n = n, .k = 1040, .order_b = b, .bias = true, .alpha = 0.5});
      products.push_back({.batch = 5, .m = 61, .n = n, .k = 40, .order_a = Order::columns, .order_b = b, .pad = 2});
    }
  }
  for (Product product : products) {
    for (const By by : {By::microkernel, By::blas}) {
      product.by = by;
      expect_right<float>(product);
    }
  }
}

// An activation and its derivative equal the elementwise kernels; so do the sums of the gradient's columns.
template <class T>
void expect_activations(const Product& p) {
  SCOPED_TRACE(describe(p));
  Matrices<T> a(1, 1, p.m, p.k, p.order_a, p.pad), b(2, 1, p.k, p.n, p.order_b, p.pad), bias(3, 1, 1, p.n);
  const View bias_view = bias_of(bias.data, p.n);
  const auto compute = [&](const View& c, const Epilogue& epilogue) {
    cpu::matmul(c, a.view, b.view, epilogue, Workspace(cpu::matmul_workspace(c, a.view), {}).data());
  };
  const auto near = [](const std::vector<T>& x, const std::vector<T>& y, double size) {
    for (std::size_t n = 0; n < x.size(); ++n) {
      ASSERT_NEAR(x[n], y[n], size * std::numeric_limits<T>::epsilon() * (1 + std::abs(static_cast<double>(y[n]))))
          << n;
    }
  };
  for (const UnaryOp op : {UnaryOp::relu, UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu}) {
    Matrices<T> sums(4, 1, p.m, p.n);
    Matrices<T> argument = sums;
    Matrices<T> expected = sums;
    Matrices<T> c = sums;
    compute(sums.view, {.bias = bias_view});
    cpu::unary(op, 0, expected.view, sums.view);
    compute(c.view,
            {.bias = bias_view, .activation = Epilogue::Activation::apply, .op = op, .argument = argument.view});
    near(c.data, expected.data, 4);
    EXPECT_EQ(argument.data, sums.data);

    std::vector<T> column_sums(static_cast<std::size_t>(p.n), T{NAN}), expected_sums(column_sums.size());
    compute(c.view, {.activation = Epilogue::Activation::derivative,
                     .op = op,
                     .argument = argument.view,
                     .column_sums = bias_of(column_sums, p.n)});
    compute(sums.view, {});
    cpu::unary_backward(op, 0, expected.view, sums.view, argument.view);
    near(c.data, expected.data, 4);
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        expected_sums[static_cast<std::size_t>(j)] += expected.at(0, i, j);
      }
    }
    near(column_sums, expected_sums, 100 * std::sqrt(static_cast<double>(p.m)));
  }
}

TYPED_TEST(MatmulKernel, AppliesActivations) {
  expect_activations<TypeParam>({.batch = 1, .m = 45, .n = 51, .k = 67, .order_b = Order::columns});
  expect_activations<TypeParam>({.batch = 1, .m = 300, .n = 96, .k = 64});
  expect_activations<TypeParam>({.batch = 1, .m = 9, .n = 40, .k = 3000});
  expect_activations<TypeParam>({.batch = 1, .m = 70, .n = 33, .k = 1100, .order_a = Order::columns});
}

TYPED_TEST(MatmulKernel, SameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  std::vector<Product> products = cut_products();
  products.push_back({.batch = 1, .m = 8192, .n = 256, .k = 64, .order_b = Order::columns, .bias = true});
  products.push_back({.batch = 1, .m = 256, .n = 256, .k = 8192, .order_a = Order::columns});
  products.push_back({.batch = 1, .m = 2048, .n = 64, .k = 64, .order_b = Order::columns, .bias = true});
  products.push_back({.batch = 1, .m = 64, .n = 256, .k = 2048, .order_a = Order::columns});
  products.push_back({.batch = 1, .m = 512, .n = 512, .k = 512});
  products.push_back({.batch = 1, .m = 777, .n = 1111, .k = 333});
  products.push_back({.batch = 8, .m = 512, .n = 512, .k = 64, .order_b = Order::columns});
  for (const Product& p : products) {
    SCOPED_TRACE(describe(p));
    Matrices<TypeParam> a(1, p.batch, p.m, p.k, p.order_a), b(2, p.batch, p.k, p.n, p.order_b), bias(3, 1, 1, p.n);
    const View bias_view = bias_of(bias.data, p.n);
    std::vector<std::vector<TypeParam>> results;
    for (const int threads : {1, 2, 3, 2}) {
      set_thread_count(threads);
      Matrices<TypeParam> c(4, p.batch, p.m, p.n, p.order_c);
      multiply(c.view, a.view, b.view, p.bias ? bias_view : View{}, p.alpha, p.add);
      results.push_back(std::move(c.data));
    }
    for (std::size_t i = 1; i < results.size(); ++i) {
      EXPECT_EQ(std::memcmp(results[0].data(), results[i].data(), results[0].size() * sizeof(TypeParam)), 0);
    }
  }
  set_thread_count(before);
}

TYPED_TEST(MatmulKernel, BroadcastAxes) {
  using T = TypeParam;
  // Batch 2 x 3: a is repeated along the first axis, b along the second.
  Matrices<T> a(1, 3, 4, 5), b(2, 2, 5, 6);
  std::vector<T> c(2 * 3 * 4 * 6);
  const View c_view{c.data(), dtype_of<T>, {2, 3, 4, 6}, dense_strides({2, 3, 4, 6})};
  const View a_view{a.view.data, dtype_of<T>, {2, 3, 4, 5}, {{0, 20, 5, 1}}};
  const View b_view{b.view.data, dtype_of<T>, {2, 3, 5, 6}, {{30, 0, 6, 1}}};
  multiply(c_view, a_view, b_view, View{}, 1.0);
  for (std::int64_t x = 0; x < 2; ++x) {
    for (std::int64_t y = 0; y < 3; ++y) {
      for (std::int64_t i = 0; i < 4; ++i) {
        for (std::int64_t j = 0; j < 6; ++j) {
          double sum = 0;
          for (std::int64_t l = 0; l < 5; ++l) sum += static_cast<double>(a.at(y, i, l)) * b.at(x, l, j);
          const auto n = static_cast<std::size_t>(((x * 3 + y) * 4 + i) * 6 + j);
          EXPECT_NEAR(c[n], sum, 40 * std::numeric_limits<T>::epsilon());
        }
      }
    }
  }
}

TYPED_TEST(MatmulKernel, EmptySumsAndEmptyResults) {
  for (const Order order_c : {Order::rows, Order::columns}) {
    for (const bool bias : {false, true}) {
      expect_right<TypeParam>({.batch = 2, .m = 5, .n = 3, .k = 0, .order_c = order_c, .pad = 1, .bias = bias});
      expect_right<TypeParam>({.batch = 0, .m = 5, .n = 3, .k = 2, .order_c = order_c, .bias = bias});
      expect_right<TypeParam>({.batch = 2, .m = 0, .n = 3, .k = 2, .order_c = order_c, .bias = bias});
      expect_right<TypeParam>({.batch = 2, .m = 5, .n = 0, .k = 2, .order_c = order_c, .bias = bias});
    }
  }
}

TYPED_TEST(MatmulKernel, OldNumbersDoNotReachANewResult) {
  std::vector<TypeParam> c(200 * 200, std::numeric_limits<TypeParam>::quiet_NaN());
  Matrices<TypeParam> a(1, 1, 200, 200);
  const View c_view{c.data(), dtype_of<TypeParam>, {1, 200, 200}, dense_strides({1, 200, 200})};
  multiply(c_view, a.view, a.view, View{}, 1.0);
  for (const TypeParam value : c) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace tally::matmul_kernel_test
