// A position that is NaN stays NaN: a gate that went wrong must not look like one that is beyond the table.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/score_cases.hpp"

namespace tally {
namespace {

class NotANumber : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(NotANumber);

Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  Tensor x = Tensor::from(values, shape, default_device());
  set_requires_grad(x);
  return x;
}

TEST_P(NotANumber, StaysSoWhereATableIsRead) {
  const Tensor table = leaf({10, 20, 40}, {1, 3}), position = leaf({std::nan(""), 0.5, 2, 7, -0.5}, {1, 5});
  const Tensor y = interpolate(table, position);
  const std::vector<double> found = y.to_vector<double>();
  EXPECT_TRUE(std::isnan(found[0]));
  EXPECT_EQ(std::vector<double>(found.begin() + 1, found.end()), std::vector<double>({15, 40, 40, 5}));
  backward(sum(y));
  const std::vector<double> d_position = gradient(position).to_vector<double>();
  EXPECT_EQ(std::vector<double>(d_position.begin() + 1, d_position.end()), std::vector<double>({10, 0, 0, 10}));
  EXPECT_EQ(gradient(table).to_vector<double>()[2], 2);
}

// Gates that no longer see the scores: nothing but the position tells.
TEST_P(NotANumber, StaysSoThroughAttention) {
  constexpr std::int64_t spoilt = 3;
  const testing::Sizes sizes{1, 2, 35, 4, 4};
  for (const testing::ShapeCase& one : testing::shape_cases()) {
    if (!one.name.ends_with("own_gates")) continue;
    for (const bool tiled : {true, false}) {
      SCOPED_TRACE(concat(one.name, tiled ? " tiled" : " composed"));
      const auto found = testing::compute(
          one, sizes, DType::f64, tiled, 0, [&](const std::string& name, const Shape& shape, double deviation) {
            Tensor tensor = testing::normal_tensor(name, shape, deviation);
            if (name != "gate_query") return tensor;
            Tensor row = Tensor::full({shape[0], shape[1], 1, shape[3]}, std::nan(""), DType::f64, default_device());
            return concat(std::vector<Tensor>{slice(tensor, 2, 0, spoilt), row, slice(tensor, 2, spoilt + 1, shape[2])},
                          2);
          });
      for (std::int64_t row = 0; row < sizes.length; ++row) {
        for (const double value : slice(found.output, 2, row, row + 1).to_vector<double>()) {
          ASSERT_EQ(std::isnan(value), row == spoilt) << row;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tally
