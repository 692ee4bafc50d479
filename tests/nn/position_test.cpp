// Properties of single encodings, in addition to the tests of all (tests/nn/encoding_test.cpp) and their reference
// values.
#include <gtest/gtest.h>

#include "nn/optimizer.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::position_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

Tensor leaf(std::string_view name, const Shape& shape) {
  Tensor tensor = normal_tensor(name, shape);
  set_requires_grad(tensor);
  return tensor;
}

std::unique_ptr<Encoding> make(std::string_view text, const AttentionSizes& sizes = {}) {
  return make_encoding(EncodingChoice::parse(text), sizes, [](std::string_view name, const Shape& shape, const Fill&) {
    return normal_tensor(name, shape);
  });
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape()));
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], tolerance) << n;
}

// Every key up to the query itself is unmasked.
Tensor weights_of(const Encoding& encoding, const Tensor& logits) {
  const Tensor seen = mask_tensor({}, logits.size(2), logits.dtype(), logits.device());
  return encoding.weights(logits, seen, {logits, logits, logits, logits, 1.0});
}

class Hard : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Hard);
class Kerple : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Kerple);
class FireByDistance : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(FireByDistance);
class Xpos : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Xpos);
class Longrope : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Longrope);
class AddedPositions : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(AddedPositions);

// q of the tokens first .. first + T - 1 as rope turns it.
Tensor turned(const std::vector<std::pair<std::string, std::string>>& options, const Tensor& q,
              std::int64_t first = 0) {
  EncodingChoice choice = EncodingChoice::parse("rope");
  for (const auto& [name, value] : options) choice.set_option(name, value);
  Tensor result = q, k = q, v = q;
  make_encoding(choice, {}, {})->rotate(result, k, v, {q, q, q, q, 0.5, first});
  return result;
}

// With one factor for all planes it is interpolation. Without stretching only the size differs.
TEST_P(Longrope, OfEqualFactorsInterpolatesPositions) {
  const Tensor q = normal_tensor("q", {1, 2, 9, 4});
  const std::vector<std::pair<std::string, std::string>> lists{
      {"stretch", "longrope"}, {"factor", "3"}, {"short-factors", "3/3"}, {"long-factors", "1/1"}};
  const double size = std::sqrt(1 + std::log(3.0) / std::log(512.0));
  expect_near(turned(lists, q), turned({{"stretch", "pi"}, {"factor", "3"}}, q) * size, 1e-12);
  expect_near(turned({{"stretch", "longrope"}, {"factor", "1"}}, q), turned({}, q), 1e-12);
}

// The length of the text decides: all of its tokens are rotated by one list or by the other.
TEST_P(Longrope, TakesTheLongListForEveryTokenOfALongerText) {
  const Tensor q = normal_tensor("q", {1, 2, 9, 4});
  const auto with_length = [](const std::string& length) {
    return std::vector<std::pair<std::string, std::string>>{{"stretch", "longrope"},
                                                            {"factor", "1"},
                                                            {"trained-length", length},
                                                            {"short-factors", "1/1"},
                                                            {"long-factors", "2.5/2.5"}};
  };
  const Tensor slowly = turned({{"stretch", "pi"}, {"factor", "2.5"}}, q);
  expect_near(turned(with_length("9"), q), turned({}, q), 1e-12);
  expect_near(turned(with_length("8"), q), slowly, 1e-12);
  expect_near(turned(with_length("8"), slice(q, 2, 7, 9), 7), slice(slowly, 2, 7, 9), 1e-12);
}

// dv = hᵀ do, dl = a (da - sum a da), written out.
TEST_P(Hard, PassesGradientsStraightThroughTheSoftmax) {
  const Shape shape{1, 2, 6, 4};
  const Tensor logits = leaf("logits", {1, 2, 6, 6}), v = leaf("v", shape), d_output = normal_tensor("d", shape);
  const auto hard = make("hard");
  ASSERT_TRUE(hard->traits.replaces_softmax && hard->traits.straight_through);
  const Tensor h = weights_of(*hard, logits);
  backward(matmul(h, v), d_output);

  const NoGrad by_hand;
  const Tensor a = causal_softmax(logits), da = matmul(d_output, transpose(v, -1, -2));
  expect_near(gradient(v), matmul(transpose(h, -1, -2), d_output), 1e-14);
  expect_near(gradient(logits), a * (da - sum(a * da, {-1}, true)), 1e-14);
  for (const double weight : h.to_vector<double>()) EXPECT_TRUE(weight == 0 || weight == 1);
}

TEST_P(Hard, TakesTheNearestOfEqualKeys) {
  // Masked logits are above the diagonal.
  const Tensor logits = Tensor::from(std::vector<double>{1, 9, 9, 9,  //
                                                         2, 2, 9, 9,  //
                                                         3, 3, 1, 9,  //
                                                         -5, -7, -5, -6},
                                     {1, 1, 4, 4}, default_device());
  EXPECT_EQ(weights_of(*make("hard"), logits).to_vector<double>(), (std::vector<double>{1, 0, 0, 0,  //
                                                                                        0, 1, 0, 0,  //
                                                                                        0, 1, 0, 0,  //
                                                                                        0, 0, 1, 0}));
}

TEST_P(Hard, JoinsAnyEncodingButAnotherRule) {
  EXPECT_TRUE(make("absolute+hard")->traits.straight_through);
  EXPECT_TRUE(make("cope+hard+rope")->traits.replaces_softmax);
  EXPECT_FALSE(make("cope+rope")->traits.straight_through);
}

// Parameters that updates push out of their range come back into it, at once and in every layer; others stay.
TEST_P(Kerple, ParametersStayInTheirRange) {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = 2;
  for (const auto& [kernel, largest] : {std::pair{"log", 100.0}, std::pair{"power", 2.0}}) {
    SCOPED_TRACE(kernel);
    EncodingChoice choice = EncodingChoice::parse("kerple+rope");
    choice.set_option("kernel", kernel);
    Transformer model(options, choice, 5, 8, 1, DType::f32, default_device());
    for (auto& [path, parameter] : model.parameters()) {
      parameter.copy_from(Tensor::from(std::vector<float>{-3}, {1}).detached_broadcast("test", parameter.shape()));
      if (path.find("kerple") != std::string::npos) parameter.detached_select(0, 0).copy_from(Tensor::scalar(50));
    }
    model.project_parameters();
    int seen = 0;
    for (const auto& [path, parameter] : model.parameters()) {
      const std::vector<float> values = parameter.to_vector<float>();
      if (path.find("kerple") == std::string::npos) {
        EXPECT_EQ(values.front(), -3) << path;
        continue;
      }
      ++seen;
      EXPECT_FLOAT_EQ(values[0], path.ends_with("r2") && largest < 50 ? static_cast<float>(largest) : 50) << path;
      EXPECT_FLOAT_EQ(values[1], 0.01F) << path;
    }
    EXPECT_EQ(seen, 4);
  }
}

TEST_P(Kerple, PowerOfDistanceZeroIsZeroWithoutGradient) {
  EncodingChoice choice = EncodingChoice::parse("kerple");
  choice.set_option("kernel", "power");
  std::vector<Tensor> parameters;
  const auto encoding = make_encoding(choice, {}, [&](std::string_view, const Shape& shape, const Fill&) {
    parameters.push_back(Tensor::full(shape, 0.5, DType::f64, default_device()));
    set_requires_grad(parameters.back());
    return parameters.back();
  });
  const Tensor q = Tensor::zeros({1, 2, 1, 4}, DType::f64, default_device()),
               x = Tensor::zeros({1, 1, 8}, DType::f64, default_device());
  Score score;
  encoding->score({x, q, q, q, 0.5}, score);
  const Tensor bias = std::get<Toeplitz>(score.biases.at(0)).bias;
  backward(sum(bias));
  EXPECT_EQ(bias.to_vector<double>(), (std::vector<double>{0, 0}));
  for (const Tensor& parameter : parameters)
    EXPECT_EQ(gradient(parameter).to_vector<double>(), (std::vector<double>{0, 0}));
}

// Just below and just above the length from which rows differ, the two forms meet.
TEST_P(FireByDistance, ContinuesTheFormByRow) {
  AttentionSizes sizes;
  sizes.length = sizes.max_length = 7;
  const Tensor x = normal_tensor("x", {1, 7, sizes.width()});
  const Tensor q = normal_tensor("q", {1, 2, 7, 4}), k = normal_tensor("k", {1, 2, 7, 4});
  std::vector<Tensor> outputs, d_thresholds;
  for (const double length : {6.0 + 1e-9, 6.0 - 1e-9}) {
    Tensor threshold;
    const auto encoding = make_encoding(EncodingChoice::parse("fire"), sizes,
                                        [&](std::string_view name, const Shape& shape, const Fill&) {
                                          if (name != "fire.m") return normal_tensor(name, shape);
                                          threshold = Tensor::full(shape, -length / 512, DType::f64, default_device());
                                          set_requires_grad(threshold);
                                          return threshold;
                                        });
    Score score;
    encoding->score({x, q, k, k, 0.5}, score);
    EXPECT_EQ(score.score_mod.has_value(), length < 6);
    EXPECT_EQ(score.biases.size(), length < 6 ? 0U : 1U);
    outputs.push_back(attention_output(*encoding, x, q, k, k));
    backward(slice(outputs.back(), 2, 0, 6), normal_tensor("d", {1, 2, 6, 4}));
    d_thresholds.push_back(gradient(threshold));
  }
  expect_near(outputs[0], outputs[1], 1e-8);
  // The last row, which is on one side of the bend here and on the other there, is left out.
  expect_near(d_thresholds[0], d_thresholds[1], 1e-6);
  EXPECT_GT(std::abs(d_thresholds[0].item()), 1e-3);
}

// The product depends only on the distance, up to the length from which it is refused.
TEST_P(Xpos, RefusesPlacesWhoseScalesLeaveTheNumbers) {
  const auto encoding = make("xpos");
  EXPECT_NO_THROW(encoding->check_length(200'000));
  EXPECT_THROW(encoding->check_length(300'000), Error);

  const Tensor q = normal_tensor("q", {1, 2, 1, 4}), k = normal_tensor("k", {1, 2, 1, 4});
  std::vector<Tensor> products;
  for (const std::int64_t index : {3, 100'003}) {
    Tensor turned_q = q, turned_k = k, unused = k;
    encoding->rotate(turned_q, unused, unused, {q, q, k, k, 0.5, index});
    unused = q;
    encoding->rotate(unused, turned_k, unused, {q, q, k, k, 0.5, index - 3});
    products.push_back(sum(turned_q * turned_k, {3}));
  }
  expect_near(products[0], products[1], 1e-9);
}

// Tokens with arbitrary positions: each gets the numbers of its position.
TEST_P(AddedPositions, AreThoseWhereTokensStand) {
  const Tensor x = normal_tensor("x", {2, 3, 8});
  const std::vector<std::int32_t> places{5, 0, 2, 1, 1, 6};
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!entry->traits.embeds) continue;
    SCOPED_TRACE(entry->name);
    const auto encoding = make(entry->name, {.max_length = 7});
    const Tensor found =
        encoding->embed(x, {.each = Tensor::from(places, {2, 3}, default_device()), .end = 7}).to(Device{});
    for (std::int64_t n = 0; n < 6; ++n) {
      const std::int64_t b = n / 3, t = n % 3;
      const Tensor one = x.detached_slice(0, b, b + 1).detached_slice(1, t, t + 1).to_dense();
      const Tensor expected = encoding->embed(one, {.first = places[static_cast<std::size_t>(n)]});
      EXPECT_EQ(found.detached_slice(0, b, b + 1).detached_slice(1, t, t + 1).to_vector<double>(),
                expected.to(Device{}).to_vector<double>())
          << n;
    }
  }
}

}  // namespace tally::position_test
