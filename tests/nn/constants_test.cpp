// Tables of positions and distances: their numbers, and that each is computed once.
#include "nn/encoding/constants.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/transformer.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace constants_test {

class ConstantsOn : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(ConstantsOn);

double half(std::int64_t t) { return 0.5 * static_cast<double>(t); }
double column_of(std::int64_t t, std::int64_t column, std::int64_t) { return static_cast<double>(10 * t + column); }

TEST_P(ConstantsOn, HoldTheirNumbers) {
  Constants constants(4);
  const Tensor halves = constants.of(half, 1, 3, DType::f64, default_device());
  EXPECT_EQ(halves.shape(), (Shape{2}));
  EXPECT_EQ(halves.to_vector<double>(), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(constants.of(half, 0, 3, DType::i32, default_device()).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 0, 1}));
  const Tensor rows = constants.of(column_of, 2, 4, 3, DType::f32, default_device());
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(rows.to_vector<float>(), (std::vector<float>{20, 21, 22, 30, 31, 32}));
  EXPECT_EQ(constants.of(column_of, 1, 2, 2, DType::f32, default_device()).to_vector<float>(),
            (std::vector<float>{10, 11}));
}

double power(std::int64_t t, std::int64_t column, std::int64_t, std::span<const double> values) {
  return values[0] * std::pow(static_cast<double>(t), static_cast<double>(column) + values[1]);
}

// Captured steps read the first table as long as they exist.
TEST_P(ConstantsOn, ALongerTextGetsAnotherTableAndTheFirstStays) {
  Constants constants(4);
  const auto table = [&](std::int64_t end) { return constants.of(half, 0, end, DType::f64, default_device()); };
  const auto first = table(2).storage();
  EXPECT_EQ(table(4).storage(), first);
  const auto second = table(5).storage();
  EXPECT_NE(second, first);
  EXPECT_EQ(table(8).storage(), second) << "made twice as long, for texts that grow token by token";
  EXPECT_EQ(table(4).storage(), first);
  EXPECT_EQ(table(8).to_vector<double>().back(), 3.5);
}

int calls = 0;

struct Counted final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    const Tensor row = in.distances([](std::int64_t n) { return ++calls, -static_cast<double>(n); });
    score.biases.push_back(Toeplitz{row + Tensor::zeros({in.q.size(1), 1}, row.dtype(), row.device())});
  }
};

TEST_P(ConstantsOn, AreMadeOnceForAllLayersAndSteps) {
  const EncodingEntry entry = encoding_entry<NoOptions, Counted>("counted", "", "", "");
  EncodingChoice choice = EncodingChoice::parse("0-1:none,2:none@0,rope@1");
  for (EncodingChoice::Part& part : choice.parts) {
    if (part.entry->name == "none") part.entry = &entry;
  }
  for (EncodingChoice::Assignment& assignment : choice.assignments) {
    if (assignment.sum[0]->name == "none") assignment.sum[0] = &entry;
  }
  ModelOptions options;
  options.layers = 3, options.width = 8, options.heads = 2;
  Transformer model(options, choice, 5, 12, 1, DType::f32, default_device());
  const Tensor tokens = Tensor::zeros({1, 9}, DType::i32, default_device());
  calls = 0;
  for (int step = 0; step < 2; ++step) model.forward(tokens);
  EXPECT_EQ(calls, 12) << "one for each distance of the longest sequence";
}

// On a device that only counts memory, a table may have any length, and nothing is computed.
TEST(Constants, AreNotComputedWhereMemoryIsOnlyCounted) {
  constexpr std::int64_t length = std::int64_t{1} << 40;
  Constants constants(length);
  calls = 0;
  const auto number = [](std::int64_t) { return static_cast<double>(++calls); };
  EXPECT_EQ(constants.of(number, 0, length, DType::f32, meta_of({})).numel(), length);
  EXPECT_EQ(calls, 0);
}

}  // namespace constants_test
}  // namespace tally
