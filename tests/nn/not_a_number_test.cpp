// A position that is NaN stays NaN: a gate that went wrong must not look like one that is beyond the table.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/score_cases.hpp"

namespace tally {
namespace not_a_number_test {

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

// The values of a tensor [B, H, T, N] in which one row is NaN.
Tensor with_spoilt_row(const Tensor& x, std::int64_t row) {
  const Tensor none = Tensor::full({x.size(0), x.size(1), 1, x.size(3)}, std::nan(""), x.dtype(), x.device());
  return concat(std::vector<Tensor>{slice(x, 2, 0, row), none, slice(x, 2, row + 1, x.size(2))}, 2);
}

// Whether the rows first .. end - 1 of x are NaN, and no other.
void expect_spoilt(const Tensor& x, std::int64_t first, std::int64_t end) {
  for (std::int64_t row = 0; row < x.size(2); ++row) {
    for (const double value : slice(x, 2, row, row + 1).to_vector<double>()) {
      ASSERT_EQ(std::isnan(value), first <= row && row < end) << row;
    }
  }
}

// `spoil`: the leaf that is NaN in one row, from which the position is computed. The row's other numbers are valid, so
// only the position spreads the NaN.
void expect_to_stay_so(const testing::ShapeCase& one, const std::string& spoil) {
  // In one tile of keys, and in several: there all keys but one are beyond the tile in which positions reach the end of
  // a table.
  const std::int64_t long_text = testing::several_tiles();
  for (const std::int64_t length : {std::int64_t{35}, long_text}) {
    if (length > 35 && testing::only_small_kernels(default_device())) continue;
    const std::int64_t spoilt = length == long_text ? length - 6 : 3;
    const testing::Sizes sizes{1, 2, length, 4, 4};
    for (const bool tiled : {true, false}) {
      SCOPED_TRACE(formatted("{}{}{} tokens", one.name, tiled ? " tiled, " : " composed, ", length));
      bool found_leaf = false;
      const auto found = testing::compute(one, sizes, DType::f64, tiled, 0,
                                          [&](const std::string& name, const Shape& shape, double deviation) {
                                            const Tensor tensor = testing::normal_tensor(name, shape, deviation);
                                            found_leaf = found_leaf || name == spoil;
                                            return name == spoil ? with_spoilt_row(tensor, spoilt) : tensor;
                                          });
      EXPECT_TRUE(found_leaf) << spoil;
      expect_spoilt(found.output, spoilt, spoilt + 1);
      expect_spoilt(found.gradients.at("q"), spoilt, spoilt + 1);
    }
  }
}

// Gates that no longer depend on the scores: only the position spreads the NaN.
TEST_P(NotANumber, StaysSoThroughAttention) {
  for (const testing::ShapeCase& one : testing::shape_cases()) {
    if (one.name.ends_with("own_gates")) expect_to_stay_so(one, "gate_query");
  }
}

// A table between knots without gates: the place is the distance times a number of the row.
TEST_P(NotANumber, StaysSoBetweenKnotsOfTheDistance) {
  const testing::ShapeCase fire{
      "fire", [](const testing::ShapeParts& x) {
        const auto& [s, leaf, score] = x;
        const testing::AttentionSizes sizes{s.batch, s.heads, s.length, s.width, s.length};
        const auto encoding = testing::make_encoding(
            EncodingChoice::parse("fire"), sizes, [](std::string_view name, const Shape& shape, const Fill&) {
              constexpr double threshold =
                  2.5 / 512;  // below the length: a score modification, and no bias of the distance
              return name == "fire.m" ? Tensor::full(shape, threshold, DType::f64, default_device())
                                      : testing::normal_tensor(name, shape, 0.7);
            });
        const Tensor q = Tensor::zeros({s.batch, s.heads, s.length, s.width}, DType::f64, default_device());
        encoding->score({q, q, q, q, 1.0}, score);
        ASSERT_TRUE(score.score_mod.has_value());
        score.score_mod->rows = score.score_mod->rows + leaf("rows", {s.batch, s.heads, s.length, 1}, 0);
      }};
  expect_to_stay_so(fire, "rows");
}

}  // namespace not_a_number_test
}  // namespace tally
