// Tensors from numbers, sequences and random numbers, and their text.
#include "core/tensor.hpp"

#include <cmath>
#include <cstdint>

#include "tests/devices.hpp"
#include "tests/error_of.hpp"

namespace tally::tensor_test {

using testing::error_of;

TEST(Tensor, ComesFromNestedLists) {
  const Tensor matrix = Tensor::from({{1, 2, 3}, {4, 5, 6.5}});
  EXPECT_EQ(matrix.shape(), (Shape{2, 3}));
  EXPECT_EQ(matrix.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6.5}));
  EXPECT_EQ(Tensor::from({1, 2}, DType::i32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(Tensor::from({true, false}, DType::boolean).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(Tensor::from({{{5}}}).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(Tensor::from(0.5, DType::f64).item(), 0.5);
  EXPECT_EQ(Tensor::from({{}, {}}).shape(), (Shape{2, 0}));
  EXPECT_EQ(error_of([] {
              Tensor::from({{1, 2}, {3}});
            }),
            "[tensor] lists of one level must have one shape, got [2] and [1]");
  EXPECT_EQ(error_of([] {
              Tensor::from({{1, 2}, 3});
            }),
            "[tensor] lists of one level must have one shape, got [2] and []");
}

class Creation : public testing::OnDevice {};

TEST_P(Creation, MakesSequences) {
  const Device on = GetParam();
  EXPECT_EQ(Tensor::ones({2}, DType::f32, on).to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(Tensor::arange(4, DType::i64, on).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(Tensor::arange(1, 0, -0.25, DType::f64, on).to_vector<double>(), (std::vector<double>{1, 0.75, 0.5, 0.25}));
  EXPECT_EQ(Tensor::arange(2, 2).shape(), Shape{0});
  EXPECT_EQ(Tensor::eye(2, DType::f32, on).to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(Tensor::eye(2, DType::f32, on).device(), on);
  EXPECT_EQ(error_of([] { Tensor::arange(0, 1, 0); }),
            "[arange] begin 0, end 1 and step 0 give no finite number of elements");
}

TEST_P(Creation, DrawsNumbersFromTheSeedOnly) {
  const Shape shape{5000};
  const Tensor uniform = Tensor::rand(shape, 3, DType::f64, GetParam()),
               normal = Tensor::randn(shape, 3, DType::f64, GetParam());
  EXPECT_EQ(uniform.to_vector<double>(), Tensor::rand(shape, 3, DType::f64).to_vector<double>());
  EXPECT_EQ(normal.to_vector<double>(), Tensor::randn(shape, 3, DType::f64).to_vector<double>());
  EXPECT_NE(normal.to_vector<double>(), Tensor::randn(shape, 4, DType::f64).to_vector<double>());
  double sum = 0, squares = 0, mean = 0;
  for (const double x : uniform.to_vector<double>()) {
    EXPECT_TRUE(x >= 0 && x < 1);
    mean += x / 5000;
  }
  for (const double x : normal.to_vector<double>()) sum += x, squares += x * x;
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1 / 12.0 / 5000));
  EXPECT_NEAR(sum / 5000, 0, 5 / std::sqrt(5000.0));
  EXPECT_NEAR(squares / 5000, 1, 5 * std::sqrt(2.0 / 5000));
  EXPECT_EQ(error_of([] { Tensor::rand({2}, 1, DType::i32); }), "[rand] random numbers are f32 or f64, not i32");
}
TALLY_ON_EVERY_DEVICE(Creation);

TEST(Tensor, PrintsNumbersOfATensorAlike) {
  EXPECT_EQ(to_text(Tensor()), "undefined");
  EXPECT_EQ(to_text(Tensor::zeros({2, 0})), "[]");
  EXPECT_EQ(to_text(Tensor::from(0.1)), "0.1");
  EXPECT_EQ(to_text(Tensor::from({{1, -2}, {3, 4}})), "[[ 1.0 -2.0]\n [ 3.0  4.0]]");
  EXPECT_EQ(to_text(Tensor::from({0.5, 2}, DType::bf16)), "[0.5 2.0]");
  EXPECT_EQ(to_text(Tensor::from({1.0 / 3, NAN, -INFINITY}, DType::f64)), "[0.33333333        nan       -inf]");
  EXPECT_EQ(to_text(Tensor::from({1.25, 1e-9}, DType::f64)), "[1.25e+00 1.00e-09]");
  EXPECT_EQ(to_text(Tensor::from({10, -2}, DType::i32)), "[10 -2]");
  EXPECT_EQ(to_text(Tensor::from({true, false}, DType::boolean)), "[ True False]");
  EXPECT_EQ(to_text(Tensor::zeros({2, 1, 2}, DType::i64)), "[[[0 0]]\n\n [[0 0]]]");
}

TEST(Tensor, PrintsTheEndsOfLongAxes) {
  EXPECT_EQ(to_text(Tensor::arange(2000, DType::i32)), "[   0    1    2 ... 1997 1998 1999]");
  EXPECT_EQ(to_text(Tensor::arange(30, DType::i32)),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n 24 25 26 27 28 29]");
}

}  // namespace tally::tensor_test
