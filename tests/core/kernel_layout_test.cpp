// Kernels on layouts that operations seldom give them, against loops over all indices: permuted, every second element,
// repeated by strides of 0, empty, and large enough to be cut into several tiles.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "tests/core/kernel_array.hpp"

namespace tally::kernel_layout_test {

template <class T>
class CopyKernel : public ::testing::Test {};
using AllTypes = ::testing::Types<float, double, std::int32_t, std::int64_t, bool>;
TYPED_TEST_SUITE(CopyKernel, AllTypes);

TYPED_TEST(CopyKernel, ConvertsFromEveryType) {
  const auto check_from = [](auto type) {
    using From = decltype(type);
    Array<From> x({37});
    Array<TypeParam> y({37}, 2);
    cpu::copy(y.view, x.view);
    for (std::int64_t i = 0; i < 37; ++i) EXPECT_EQ(y.at(i), static_cast<TypeParam>(x.at(i))) << i;
  };
  check_from(float{});
  check_from(double{});
  check_from(std::int32_t{});
  check_from(std::int64_t{});
  check_from(bool{});
}

TYPED_TEST(CopyKernel, AnyOrderOfAxesToAnyOther) {
  // Sizes that are no multiple of the squares of a transposition.
  Array<TypeParam> x({5, 21, 2, 35});
  for (const std::vector<int>& order : std::vector<std::vector<int>>{
           {0, 1, 2, 3}, {0, 3, 2, 1}, {3, 2, 1, 0}, {1, 0, 2, 3}, {2, 3, 0, 1}, {0, 2, 3, 1}}) {
    const View source = permuted(x.view, order);
    Array<TypeParam> y(source.shape, 2);
    cpu::copy(y.view, source);
    for_each_index(source.shape, [&](const Index& index) {
      ASSERT_EQ(element<TypeParam>(y.view, index), element<TypeParam>(source, index));
    });
    Array<TypeParam> back(x.view.shape, 3);
    cpu::copy(permuted(back.view, order), source);
    EXPECT_EQ(back.values(), x.values());
  }
}

TYPED_TEST(CopyKernel, LeavesElementsBetweenStridesAlone) {
  Array<TypeParam> x({3, 8}), y({3, 15}, 2), before({3, 15}, 2), after({3, 15}, 2);
  cpu::copy(every_second(y.view, 1), x.view);
  cpu::fill(every_second(after.view, 1), 1.0);
  for_each_index(y.view.shape, [&](Index index) {
    const bool written = index[1] % 2 == 0;
    const TypeParam copied = element<TypeParam>(y.view, index), filled = element<TypeParam>(after.view, index);
    const TypeParam old = element<TypeParam>(before.view, index);
    index[1] /= 2;
    EXPECT_EQ(copied, written ? element<TypeParam>(x.view, index) : old);
    EXPECT_EQ(filled, written ? static_cast<TypeParam>(1) : old);
  });
}

TYPED_TEST(CopyKernel, RepeatsAxesOfStrideZero) {
  Array<TypeParam> x({1, 4, 1}), y({3, 4, 5}, 2);
  cpu::copy(y.view, repeated(x.view, y.view.shape));
  for_each_index(y.view.shape,
                 [&](const Index& index) { EXPECT_EQ(element<TypeParam>(y.view, index), x.at(index[1])); });
}

TEST(FillKernel, MoreThanATileOfAnyType) {
  Array<float> y({3, 50'001});
  cpu::fill(y.view, 2.5);
  EXPECT_EQ(y.values(), std::vector<float>(150'003, 2.5f));
  Array<bool> flags({9});
  cpu::fill(flags.view, -1.0);
  EXPECT_EQ(flags.values(), std::vector<bool>(9, true));
}

// --- reduce ---

View reduced_like(const View& x, unsigned reduced_axes) {
  View y = x;
  for (int axis = 0; axis < x.shape.rank; ++axis) {
    if (reduced_axes >> axis & 1u) y.shape[axis] = 1;
  }
  y.strides = dense_strides(y.shape);
  return y;
}

// All sets of axes of x.
template <class T>
void expect_reductions(const View& x) {
  for (unsigned axes = 0; axes < 1u << x.shape.rank; ++axes) {
    const Shape shape = reduced_like(x, axes).shape;
    Array<double> sum(shape), largest(shape);
    cpu::fill(sum.view, 0.0);
    cpu::fill(largest.view, -std::numeric_limits<double>::infinity());
    for_each_index(x.shape, [&](const Index& index) {
      const auto value = static_cast<double>(element<T>(x, index));
      element<double>(sum.view, index) += value;
      element<double>(largest.view, index) = std::max(element<double>(largest.view, index), value);
    });
    Array<T> y(shape, 2);
    cpu::reduce(ReduceOp::maximum, y.view, x, Workspace(cpu::reduce_workspace(y.view, x), {}).data());
    for (std::int64_t i = 0; i < shape.numel(); ++i) ASSERT_EQ(static_cast<double>(y.at(i)), largest.at(i)) << axes;
    cpu::reduce(ReduceOp::sum, y.view, x, Workspace(cpu::reduce_workspace(y.view, x), {}).data());
    const auto count = static_cast<double>(x.numel()) / static_cast<double>(shape.numel());
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      // The sum in double is exact compared with the last rounding: the elements are below 4.
      const double bound = std::abs(sum.at(i)) * static_cast<double>(std::numeric_limits<T>::epsilon()) + 1e-12 * count;
      ASSERT_NEAR(static_cast<double>(y.at(i)), sum.at(i), bound) << "axes " << axes << " element " << i;
    }
  }
}

TEST(ReduceKernel, AnyAxesOfAnyLayout) {
  Array<float> x({6, 11, 5, 37});
  expect_reductions<float>(x.view);
  expect_reductions<float>(permuted(x.view, {3, 1, 0, 2}));
  expect_reductions<float>(permuted(x.view, {0, 3, 2, 1}));
  expect_reductions<float>(every_second(x.view, 3));
  Array<double> narrow({6, 1, 5, 1});
  expect_reductions<double>(repeated(narrow.view, {6, 11, 5, 7}));
}

TEST(ReduceKernel, SeveralTilesAlongEveryAxis) {
  expect_reductions<float>(Array<float>({700, 3, 600}).view);
  expect_reductions<float>(Array<float>({2, 300'000}).view);
  expect_reductions<float>(permuted(Array<float>({2, 300'000}).view, {1, 0}));
}

TEST(ReduceKernel, NothingToReduceGivesTheNeutralElement) {
  Array<float> x({3, 0}), y({3, 1}), none({0, 1});
  cpu::reduce(ReduceOp::sum, y.view, x.view, Workspace(cpu::reduce_workspace(y.view, x.view), {}).data());
  EXPECT_EQ(y.values(), std::vector<float>(3, 0.0f));
  cpu::reduce(ReduceOp::sum, none.view, Array<float>({0, 4}).view,
              Workspace(cpu::reduce_workspace(none.view, Array<float>({0, 4}).view), {}).data());
}

TEST(ReduceKernel, NanWinsTheMaximumWhereverItStands) {
  for (const Shape& shape : {Shape{1, 100}, Shape{100, 1}}) {
    for (const std::int64_t index : {0, 31, 64, 99}) {
      Array<float> x({100, 1}), y({1, 1});
      x.at(index) = std::numeric_limits<float>::quiet_NaN();
      x.view.shape = shape;
      x.view.strides = dense_strides(shape);
      cpu::reduce(ReduceOp::maximum, y.view, x.view, Workspace(cpu::reduce_workspace(y.view, x.view), {}).data());
      EXPECT_TRUE(std::isnan(y.at(0)));
    }
  }
}

TEST(ReduceKernel, SquaredNormOfSeveralBlocks) {
  Array<float> x({200'003});
  Array<double> y({1});
  cpu::squared_norm({&y.view, 1}, {&x.view, 1}, Workspace(cpu::squared_norm_workspace({&x.view, 1}), {}).data());
  double expected = 0.0;
  for (const float value : x.values()) expected += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(y.at(0), expected, 1e-12 * expected);
}

// --- elementwise on mixed layouts ---

TEST(ElementwiseKernel, OperandsOfDifferentLayouts) {
  const Shape shape{3, 33, 700};
  Array<float> a({700, 33, 3}), b({1, 33, 1}, 2), y(shape), c({3, 1, 700}, 4);
  const View transposed = permuted(a.view, {2, 1, 0});
  cpu::binary(BinaryOp::subtract, y.view, transposed, repeated(b.view, shape));
  for_each_index(shape, [&](const Index& index) {
    ASSERT_EQ(element<float>(y.view, index), element<float>(transposed, index) - element<float>(b.view, index));
  });
  Array<bool> less(shape);
  cpu::compare(CompareOp::less, less.view, repeated(c.view, shape), transposed);
  cpu::where(y.view, less.view, transposed, repeated(b.view, shape));
  for_each_index(shape, [&](const Index& index) {
    const float left = element<float>(c.view, index), right = element<float>(transposed, index);
    ASSERT_EQ(element<bool>(less.view, index), left < right);
    ASSERT_EQ(element<float>(y.view, index), left < right ? right : element<float>(b.view, index));
  });
  cpu::unary(UnaryOp::negate, 0.0, y.view, transposed);
  for_each_index(
      shape, [&](const Index& index) { ASSERT_EQ(element<float>(y.view, index), -element<float>(transposed, index)); });
}

TEST(ElementwiseKernel, IntegerDivisionNeverTraps) {
  Array<std::int32_t> a({4}), b({4}), y({4});
  constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  const std::array<std::int32_t, 4> numerators{7, -7, 5, lowest}, denominators{2, 2, 0, -1},
      quotients{3, -3, 0, lowest};
  for (std::size_t i = 0; i < 4; ++i) {
    a.at(static_cast<std::int64_t>(i)) = numerators[i];
    b.at(static_cast<std::int64_t>(i)) = denominators[i];
  }
  cpu::binary(BinaryOp::divide, y.view, a.view, b.view);
  EXPECT_EQ(y.values(), std::vector<std::int32_t>(quotients.begin(), quotients.end()));
}

TEST(ElementwiseKernel, LimitsAtInfinity) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Array<float> x({2}), ones({2}), y({2});
  x.at(0) = infinity;
  x.at(1) = -infinity;
  cpu::fill(ones.view, 1.0);
  for (const UnaryOp op : {UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu, UnaryOp::softplus, UnaryOp::relu}) {
    cpu::unary(op, 0.0, y.view, x.view);
    EXPECT_EQ(y.values(), (std::vector<float>{infinity, 0.0f}));
    cpu::unary_backward(op, 0.0, y.view, ones.view, x.view, y.view);
    EXPECT_EQ(y.values(), (std::vector<float>{1.0f, 0.0f}));
  }
}

// --- causal rows ---

// Widths around the lanes, the stretches of interpolation and the blocks of running sums.
class CausalKernel : public ::testing::TestWithParam<std::int64_t> {
 protected:
  Shape shape{2, GetParam(), GetParam()};
  Array<double> x{shape}, d{shape, 2}, y{shape, 3};

  // Fills the upper triangle with NaN: nothing from there may be used.
  static void spoil(Array<double>& a) {
    for_each_index(a.view.shape, [&](const Index& i) {
      if (i[2] > i[1]) element<double>(a.view, i) = std::numeric_limits<double>::quiet_NaN();
    });
  }
  void SetUp() override {
    spoil(x);
    spoil(d);
  }
  // y against value(b, i, j) below the diagonal and 0 above.
  template <class F>
  void expect_lower(F&& value) {
    for_each_index(shape, [&](const Index& i) {
      const double exact = i[2] > i[1] ? 0.0 : value(i[0], i[1], i[2]);
      ASSERT_NEAR(element<double>(y.view, i), exact, 1e-11) << i[0] << " " << i[1] << " " << i[2];
    });
  }
  double at(const Array<double>& a, std::int64_t b, std::int64_t i, std::int64_t j) const {
    return element<double>(a.view, {b, i, j});
  }
};

TEST_P(CausalKernel, SoftmaxAndBackward) {
  cpu::softmax(y.view, x.view, true);
  const auto probability = [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t k = 0; k <= i; ++k) sum += std::exp(at(x, b, i, k));
    return std::exp(at(x, b, i, j)) / sum;
  };
  expect_lower(probability);
  Array<double> probabilities(shape);
  cpu::copy(probabilities.view, y.view);
  cpu::softmax_backward(y.view, d.view, probabilities.view, true);
  expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    double mean = 0.0;
    for (std::int64_t k = 0; k <= i; ++k) mean += at(d, b, i, k) * at(probabilities, b, i, k);
    return at(probabilities, b, i, j) * (at(d, b, i, j) - mean);
  });
}

TEST_P(CausalKernel, RunningSums) {
  cpu::cumsum(y.view, x.view, true, true);
  expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t k = j; k <= i; ++k) sum += at(x, b, i, k);
    return sum;
  });
  Array<double> original(shape);
  cpu::copy(original.view, x.view);
  cpu::cumsum(x.view, x.view, false, true);  // in place
  cpu::copy(y.view, x.view);
  expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t k = 0; k <= j; ++k) sum += at(original, b, i, k);
    return sum;
  });
}

TEST_P(CausalKernel, InterpolationAndBackward) {
  constexpr std::int64_t last = 5;
  const std::int64_t length = GetParam();
  Array<double> table({2, length, last + 1}, 5), d_table({2, length, last + 1}, 6), position(shape, 7);
  for_each_index(shape, [&](const Index& i) { element<double>(position.view, i) += 4.0; });  // 0..8
  spoil(position);
  cpu::interpolate(y.view, table.view, position.view, true);
  const auto places = [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    const double c = std::min(at(position, b, i, j), static_cast<double>(last));
    const auto low = static_cast<std::int64_t>(std::floor(c));
    return std::tuple{low, std::min(low + 1, last), c - std::floor(c)};
  };
  expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    const auto [low, high, w] = places(b, i, j);
    return (1 - w) * at(table, b, i, low) + w * at(table, b, i, high);
  });
  cpu::interpolate_backward(d_table.view, y.view, d.view, table.view, position.view, true,
                            Workspace(cpu::interpolate_backward_workspace(d_table.view), {}).data());
  expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    const auto [low, high, w] = places(b, i, j);
    return at(d, b, i, j) * (at(table, b, i, high) - at(table, b, i, low));
  });
  Array<double> exact(d_table.view.shape);
  cpu::fill(exact.view, 0.0);
  for_each_index(shape, [&](const Index& i) {
    if (i[2] > i[1]) return;
    const auto [low, high, w] = places(i[0], i[1], i[2]);
    element<double>(exact.view, {i[0], i[1], low}) += (1 - w) * element<double>(d.view, i);
    element<double>(exact.view, {i[0], i[1], high}) += w * element<double>(d.view, i);
  });
  for (std::int64_t i = 0; i < exact.view.numel(); ++i) ASSERT_NEAR(d_table.at(i), exact.at(i), 1e-11);
}

TEST_P(CausalKernel, DistancesAndTheirAdjoint) {
  const std::int64_t length = GetParam();
  for (const std::int64_t width : {std::int64_t{1}, std::int64_t{3}, length, length + 2}) {
    for (const bool shared : {false, true}) {
      for (const bool cap : {false, true}) {
        Array<double> table({2, shared ? 1 : length, width}, 5), d_table(table.view.shape, 6), exact(table.view.shape);
        cpu::read_distance(y.view, table.view, cap);
        expect_lower([&](std::int64_t b, std::int64_t i, std::int64_t j) {
          const std::int64_t n = i - j;
          if (n >= width && !cap) return 0.0;
          return at(table, b, i, std::min(n, width - 1));
        });
        cpu::fill(exact.view, 0.0);
        for_each_index(shape, [&](const Index& i) {
          const std::int64_t n = i[1] - i[2];
          if (n < 0 || (n >= width && !cap)) return;
          element<double>(exact.view, {i[0], i[1], std::min(n, width - 1)}) += element<double>(d.view, i);
        });
        cpu::read_distance_backward(d_table.view, d.view, cap);
        for (std::int64_t i = 0; i < exact.view.numel(); ++i) ASSERT_NEAR(d_table.at(i), exact.at(i), 1e-11);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, CausalKernel, ::testing::Values(1, 2, 7, 31, 32, 33, 64, 65, 130, 145),
                         ::testing::PrintToStringParamName());

// --- nothing to do ---

TEST(EmptyKernel, TensorsWithoutElements) {
  Array<float> square({2, 0, 0}), other({2, 0, 0}), table({2, 0, 5}), d_table({2, 0, 5}), rows({0, 4}), vector({0});
  Array<float> weight({4}), d_weight({4}), d_bias({4}), embedding_table({3, 4}), d_embedding({3, 4});
  Array<std::int32_t> ids({0});
  Array<bool> mask({0});
  cpu::softmax(square.view, other.view, true);
  cpu::softmax_backward(square.view, other.view, other.view, true);
  cpu::cumsum(square.view, other.view, true, true);
  cpu::decayed_cumsum(square.view, other.view, other.view);
  cpu::decayed_cumsum_backward(square.view, other.view, other.view, other.view, other.view);
  cpu::interpolate(square.view, table.view, other.view, true);
  cpu::interpolate_backward(d_table.view, square.view, other.view, table.view, other.view, true,
                            Workspace(cpu::interpolate_backward_workspace(d_table.view), {}).data());
  cpu::read_distance(square.view, table.view, true);
  cpu::read_distance_backward(d_table.view, square.view, true);
  cpu::unary(UnaryOp::exp, 0.0, square.view, other.view);
  cpu::binary(BinaryOp::add, square.view, other.view, other.view);
  cpu::copy(square.view, other.view);
  cpu::layer_norm(rows.view, vector.view, vector.view, {}, rows.view, weight.view, weight.view, 1e-5);
  cpu::cross_entropy(vector.view, vector.view, {}, rows.view, ids.view, mask.view);
  cpu::cross_entropy_backward(rows.view, vector.view, vector.view, rows.view, ids.view, mask.view);
  cpu::embedding(rows.view, embedding_table.view, ids.view);
  // Gradients of parameters are written: without rows they are 0.
  cpu::embedding_backward(d_embedding.view, rows.view, ids.view,
                          Workspace(cpu::embedding_backward_workspace(d_embedding.view, ids.view), {}).data());
  EXPECT_EQ(d_embedding.values(), std::vector<float>(12, 0.0f));
  cpu::layer_norm_backward(rows.view, {}, d_weight.view, d_bias.view, rows.view, rows.view, weight.view, vector.view,
                           vector.view, false, nullptr);
  EXPECT_EQ(d_weight.values(), std::vector<float>(4, 0.0f));
  EXPECT_EQ(d_bias.values(), std::vector<float>(4, 0.0f));
}

}  // namespace tally::kernel_layout_test
