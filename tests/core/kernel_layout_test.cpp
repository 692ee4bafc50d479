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

// --- elementwise ---

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
    cpu::unary_backward(op, 0.0, y.view, ones.view, unary_needs_output(op) ? y.view : x.view);
    EXPECT_EQ(y.values(), (std::vector<float>{1.0f, 0.0f}));
  }
}

// --- causal rows ---

// The results of all causal kernels on squares with `above` over the diagonal, which they must not use. The width is
// around the lanes, the stretches of interpolation and the blocks of running sums.
std::vector<std::vector<double>> causal_results(std::int64_t width, double above) {
  const Shape shape{2, width, width};
  const auto fill_above = [&](Array<double>& x) {
    for_each_index(shape, [&](const Index& i) {
      if (i[2] > i[1]) element<double>(x.view, i) = above;
    });
  };
  Array<double> x(shape), d(shape, 2), y(shape, 3), sums(shape, 4), position(shape, 7);
  Array<double> table({2, width, 6}, 5), d_table({2, width, 6}), distances({2, width, 3}, 6), shared({2, 1, 3}, 6);
  for (std::int64_t i = 0; i < shape.numel(); ++i) position.at(i) += 4.0;  // 0..8
  for (Array<double>* const square : {&x, &d, &position}) fill_above(*square);
  std::vector<std::vector<double>> results;
  const auto keep = [&](const Array<double>& array) { results.push_back(array.values()); };
  cpu::softmax(sums.view, x.view, true);
  keep(sums);
  cpu::softmax_backward(y.view, d.view, sums.view, true);
  keep(y);
  cpu::cumsum(y.view, x.view, true, true);
  keep(y);
  cpu::copy(sums.view, x.view);
  cpu::cumsum(sums.view, sums.view, false, true);  // in place
  keep(sums);
  cpu::interpolate(y.view, table.view, position.view, true);
  keep(y);
  cpu::interpolate_backward(d_table.view, y.view, d.view, table.view, position.view, true,
                            Workspace(cpu::interpolate_backward_workspace(d_table.view), {}).data());
  keep(y);
  keep(d_table);
  for (Array<double>* const d_distances : {&distances, &shared}) {
    cpu::read_distance_backward(d_distances->view, d.view, true);
    keep(*d_distances);
  }
  return results;
}

TEST(CausalKernel, UsesNothingAboveTheDiagonal) {
  for (const std::int64_t width : {1, 7, 32, 33, 65, 130}) {
    EXPECT_EQ(causal_results(width, std::numeric_limits<double>::quiet_NaN()), causal_results(width, 0.5)) << width;
  }
}

}  // namespace tally::kernel_layout_test
