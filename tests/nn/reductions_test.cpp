// Special parameters turn encodings into others, or into formulas of one line. Tested in both forms of attention, with
// more tokens than a tile.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/attention/composed.hpp"
#include "tests/devices.hpp"
#include "tests/nn/given_parameters.hpp"

namespace tally {
namespace reductions_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::encoding_with;
using testing::normal_tensor;

using Values = std::vector<std::pair<std::string, std::string>>;
using testing::Parameters;

constexpr std::int64_t tokens = 70, heads = 2, head_width = 4, width = heads * head_width;
constexpr double scale = 0.5;

class Reductions : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Reductions);

// With these parameters; others have their start values.
std::unique_ptr<Encoding> make(const std::string& text, const Values& options = {}, const Parameters& parameters = {}) {
  EncodingChoice choice = EncodingChoice::parse(text);
  for (const auto& [option, value] : options) choice.set_option(option, value);
  AttentionSizes sizes;
  sizes.heads = heads, sizes.head_width = head_width, sizes.length = sizes.max_length = tokens;
  return encoding_with(choice, sizes, parameters);
}

struct Operands {
  Tensor x = normal_tensor("x", {1, tokens, width}), q = normal_tensor("q", {1, heads, tokens, head_width}),
         k = normal_tensor("k", q.shape()), v = normal_tensor("v", q.shape());
};

Tensor in_tiles(const Encoding& encoding, const Operands& in, const AttentionMask& mask = {}) {
  AttentionInput input{in.x, in.q, in.k, in.v, scale};
  input.mask = mask;
  const auto [operands, score] = testing::encoded_attention(encoding, input);
  return encoding.finish(tiled_attention(operands, score), input);
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape()));
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], tolerance) << n;
}

void expect_output(const Encoding& encoding, const Operands& in, const Tensor& expected) {
  {
    SCOPED_TRACE("composed");
    expect_near(attention_output(encoding, in.x, in.q, in.k, in.v), expected);
  }
  SCOPED_TRACE("tiled");
  expect_near(in_tiles(encoding, in), expected);
}
Tensor output_of(const Encoding& encoding, const Operands& in) {
  return attention_output(encoding, in.x, in.q, in.k, in.v);
}

Tensor list(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, default_device());
}
Tensor full(const Shape& shape, double value) { return Tensor::full(shape, value, DType::f64, default_device()); }
Tensor scores_of(const Operands& in) { return matmul(in.q, transpose(in.k, -1, -2), scale); }
Tensor seen() { return mask_tensor({}, tokens, DType::f64, default_device()); }

// delta = log sigmoid(b) then, one number a head: a count is larger than the distance by the key itself, which cancels.
TEST_P(Reductions, ThresholdRelativeAttentionThatNoKeyFailsIsAlibi) {
  Operands in;
  in.q = abs(in.q), in.k = abs(in.k);
  const std::vector<double> biases{0.3, -1.2};
  std::vector<double> slopes;
  for (const double b : biases) slopes.push_back(std::log1p(std::exp(-b)));
  const auto tra =
      make("tra", {}, {{"tra.threshold.weight", full({heads, width}, 0)}, {"tra.threshold.bias", list(biases)}});
  const auto alibi = make("alibi", {{"learned", "true"}}, {{"alibi.slopes", list(slopes)}});
  Operands normed = in;
  normed.q = rms_norm(in.q), normed.k = rms_norm(in.k);
  expect_output(*tra, in, output_of(*alibi, normed));
}

TEST_P(Reductions, ThresholdRelativeAttentionThatEveryKeyFailsIsNothing) {
  Operands in;
  in.k = abs(in.k);
  const Tensor above = abs(in.q), below = negate(above);
  in.q = concat({slice(above, 2, 0, 30), slice(below, 2, 30, 40), slice(above, 2, 40, tokens)}, 2);
  const auto tra = make("tra");
  for (const Tensor& output : {output_of(*tra, in), in_tiles(*tra, in)}) {
    expect_near(slice(output, 2, 30, 40), full({1, heads, 10, head_width}, 0), 0);
    for (const double number : slice(output, 2, 29, 30).to_vector<double>()) EXPECT_NE(number, 0);
  }
}

Parameters path_parameters(const Tensor& direction, double strength) {
  return {{"path.direction.weight", direction},
          {"path.strength.weight", full({heads, width}, 0)},
          {"path.strength.bias", full({heads}, strength)}};
}

// beta = 2 sigmoid(b), which is 0, or 2, to the last bit.
TEST_P(Reductions, PathOfNoStrengthIsNoneOrFox) {
  const Operands in;
  const Tensor weight = normal_tensor("forget", {heads, width}), bias = list({0.3, -1.2});
  Parameters parameters = path_parameters(normal_tensor("direction", {width, width}), -1000);
  const Values plain{{"rank", "0"}, {"conv", "false"}};
  expect_output(*make("path", plain, parameters), in, output_of(*make("none"), in));

  parameters["path.forget.weight"] = weight;
  parameters["path.forget.bias"] = bias;
  Values forgets = plain;
  forgets.insert(forgets.end(), {{"forget", "true"}, {"gate-scale", "none"}});
  const auto fox = make("fox", {}, {{"fox.forget.weight", weight}, {"fox.forget.bias", bias}});
  expect_output(*make("path", forgets, parameters), in, output_of(*fox, in));
}

// w = e_0: every token between key and query changes the sign of one channel of the product.
TEST_P(Reductions, PathOfReflectionsOfOneChannelFlipsItEveryToken) {
  Operands in;
  in.x = full(in.x.shape(), 1);
  std::vector<double> direction(static_cast<std::size_t>(width * width)), signs;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t n = 0; n < width; ++n) direction[static_cast<std::size_t>(h * head_width * width + n)] = 1e9;
  }
  for (std::int64_t n = 0; n < tokens * head_width; ++n) {
    signs.push_back(n % head_width == 0 && n / head_width % 2 == 1 ? -1 : 1);
  }
  const Tensor flips = Tensor::from(signs, {tokens, head_width}, default_device());
  const auto path = make("path", {{"rank", "0"}, {"conv", "false"}},
                         path_parameters(Tensor::from(direction, {width, width}, default_device()), 1000));
  Operands flipped = in;
  flipped.q = in.q * flips, flipped.k = in.k * flips;
  expect_output(*path, in, output_of(*make("none"), flipped));
}

// s_ij exp(L_i - L_j): the gates of fox, by which scores are multiplied.
TEST_P(Reductions, WallOfEqualChannelsIsAFactorOfTheScore) {
  const Operands in;
  const Tensor weight = normal_tensor("weight", {heads, 1, width}), bias = normal_tensor("bias", {heads, 1});
  const auto wall = make(
      "wall", {},
      {{"wall.decay.weight", reshape(contiguous(broadcast_to(weight, {heads, head_width, width})), {width, width})},
       {"wall.decay.bias", reshape(contiguous(broadcast_to(bias, {heads, head_width})), {width})}});
  const Tensor opening = linear(in.x, reshape(weight, {heads, width}), reshape(bias, {heads}));
  const Tensor sums = cumsum(negate(softplus(negate(transpose(opening, 1, 2)))));  // L [B, H, T]
  const Tensor decay = masked_fill_zero(unsqueeze(sums, 3) - unsqueeze(sums, 2), seen());
  expect_output(*wall, in, matmul(causal_softmax(scores_of(in) * exp(decay)), in.v));
}

// Attention with one more key, the last, which has the logit c and this value.
Tensor with_one_more_key(const Operands& in, const std::vector<double>& logits, const Tensor& value) {
  const Tensor column = broadcast_to(reshape(list(logits), {1, heads, 1, 1}), {1, heads, tokens, 1});
  const Tensor a = softmax(concat({masked_fill_min(scores_of(in), seen()), contiguous(column)}, 3));
  return matmul(
      a, concat({in.v, contiguous(broadcast_to(reshape(value, {1, heads, 1, head_width}), {1, heads, 1, head_width}))},
                2));
}

TEST_P(Reductions, ASinkIsOneMoreKeyOrNone) {
  const Operands in;
  const Tensor nothing = full({heads, head_width}, 0), value = normal_tensor("value", {heads, head_width});
  const auto sink = [](const std::vector<double>& logits) { return make("sink", {}, {{"sink.logit", list(logits)}}); };
  expect_output(*sink({-1000, -1000}), in, output_of(*make("none"), in));
  expect_output(*sink({0.7, -1.5}), in, with_one_more_key(in, {0.7, -1.5}, nothing));
  expect_output(*make("sink", {{"remainder", "bias"}}, {{"sink.logit", list({0.7, -1.5})}, {"sink.remainder", value}}),
                in, with_one_more_key(in, {0.7, -1.5}, value));

  // Softmax off by one: e^l / (1 + sum of e^l).
  const Tensor e = masked_fill_zero(exp(scores_of(in)), seen());
  expect_output(*sink({0, 0}), in, matmul(e / (sum(e, {3}, true) + 1.0), in.v));
}

// A selector that masks nothing.
TEST_P(Reductions, SelectiveAttentionWithASelectorOfZeroIsNone) {
  const Operands in;
  const Tensor zero = full({head_width, width}, 0);
  const auto selective = make("selective", {{"selector", "projection"}},
                              {{"selective.selector.query.weight", zero}, {"selective.selector.key.weight", zero}});
  expect_output(*selective, in, output_of(*make("none"), in));
}

TEST_P(Reductions, CaropeStartsAsRope) {
  const Operands in;
  for (const Values& options : {Values{}, Values{{"layout", "interleaved"}}, Values{{"base", "50"}}}) {
    expect_output(*make("carope", options), in, output_of(*make("rope", options), in));
  }
}

// CABLE: the other sign, and scores that are not divided.
TEST_P(Reductions, CableIsFoxOfNegatedGates) {
  const Operands in;
  const Tensor weight = normal_tensor("weight", {heads, width}), bias = list({0.3, -1.2});
  const Parameters own{{"fox.forget.weight", weight}, {"fox.forget.bias", bias}},
      negated{{"fox.forget.weight", negate(weight)}, {"fox.forget.bias", negate(bias)}};
  expect_output(*make("fox", {{"sign", "minus"}}, own), in, output_of(*make("fox", {}, negated), in));
  Operands undivided = in;
  undivided.q = in.q / scale;
  expect_output(*make("fox", {{"score-scale", "none"}}, own), in, output_of(*make("fox", {}, own), undivided));
}

// For the score without biases, a factor of the whole logit is the same; and a factor of 1 changes nothing.
TEST_P(Reductions, ScalableSoftmaxOfTheScoreAloneIsAFactorOfQueries) {
  const Operands in;
  const Parameters given{{"ssmax.factor", list({0.7, -0.4})}, {"ssmax.bias", list({0.2, 1.1})}};
  expect_output(*make("ssmax", {{"bias", "true"}, {"whole", "true"}}, given), in,
                output_of(*make("ssmax", {{"bias", "true"}}, given), in));
  for (const std::string whole : {"false", "true"}) {
    const auto ssmax = make("ssmax", {{"bias", "true"}, {"whole", whole}},
                            {{"ssmax.factor", list({0, 0})}, {"ssmax.bias", list({1, 1})}});
    expect_output(*ssmax, in, output_of(*make("none"), in));
  }
}

// Windows of all keys, or with all keys as sink tokens. (On other devices than the CPU only one encoding is tested,
// because the kernels leave pairs out.)
TEST_P(Reductions, WindowsOfTheWholeTextHideNothing) {
  const Operands in;
  for (const EncodingEntry* entry : encoding_registry()) {
    if (entry->traits.mixes || (GetParam() != Device{} && entry->name != "alibi")) continue;
    SCOPED_TRACE(entry->name);
    const auto encoding = make(entry->name);
    const Tensor plain = output_of(*encoding, in);
    for (const AttentionMask& mask : {AttentionMask{.window = tokens}, AttentionMask{.chunk = tokens},
                                      AttentionMask{.window = 1, .chunk = 1, .first = tokens}}) {
      expect_near(attention_output(*encoding, in.x, in.q, in.k, in.v, nullptr, mask), plain);
      if (!encoding->traits.is_composed()) expect_near(in_tiles(*encoding, in, mask), plain);
    }
  }
}

}  // namespace reductions_test
}  // namespace tally
