// Tensors from numbers, sequences and random numbers, and their text, which is NumPy's
// (tests/reference/ops/make_printed.py).
#include "core/tensor.hpp"

#include <cmath>
#include <cstdint>
#include <sstream>

#include "core/io/safetensors.hpp"
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

TEST(Tensor, PrintsAsNumPyDoes) {
  const SafetensorsFile file = SafetensorsFile::open(TALLY_SOURCE_DIR "/tests/reference/printed.safetensors");
  ASSERT_GE(file.entries().size(), 45u);
  for (const SafetensorsEntry& entry : file.entries()) {
    std::ostringstream text;
    text << file.read(entry.name);
    EXPECT_EQ(text.str(), file.metadata().at(entry.name)) << entry.name;
  }
}

TEST(Tensor, PrintsViewsAndOtherTypes) {
  EXPECT_EQ(to_text(Tensor()), "undefined");
  EXPECT_EQ(to_text(Tensor::zeros({2, 0})), "[]");
  EXPECT_EQ(to_text(Tensor::from({{1, 2}, {3, 4}}).detached_transpose(0, 1)), "[[1. 3.]\n [2. 4.]]");
  EXPECT_EQ(to_text(Tensor::from({0.5, 2}, DType::bf16)), "[0.5 2. ]");
}

}  // namespace tally::tensor_test
