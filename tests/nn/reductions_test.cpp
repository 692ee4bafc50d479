// Special parameters turn encodings into others, or into formulas of one line. Compared in both forms of attention,
// with more tokens than a tile.
#include <gtest/gtest.h>

#include "tests/nn/given_parameters.hpp"

namespace tally::reductions_test {

using testing::attention_output;
using testing::normal_tensor;
using testing::Parameters;

constexpr std::int64_t tokens = 70, heads = 2, head_width = 4, width = heads * head_width;
constexpr double scale = 0.5;

class Reductions : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Reductions);

// With these parameters; others have their start values.
std::unique_ptr<Encoding> make(const EncodingChoice& choice, const Parameters& parameters = {}) {
  testing::AttentionSizes sizes;
  sizes.heads = heads;
  sizes.head_width = head_width;
  sizes.length = tokens;
  sizes.max_length = tokens;
  return encoding_with(choice, sizes, parameters);
}

struct Operands {
  Tensor x = normal_tensor("x", {1, tokens, width}), q = normal_tensor("q", {1, heads, tokens, head_width}),
         k = normal_tensor("k", q.shape()), v = normal_tensor("v", q.shape());
};

Tensor in_tiles(const Encoding& encoding, const Operands& in) {
  const AttentionInput input{in.x, in.q, in.k, in.v, scale};
  const auto [operands, score] = testing::encoded_attention(encoding, input);
  return encoding.finish(tiled_attention(operands, score), input);
}
Tensor output_of(const Encoding& encoding, const Operands& in) {
  return attention_output(encoding, in.x, in.q, in.k, in.v);
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape()));
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], tolerance) << n;
}
void expect_output(const char* what, const std::unique_ptr<Encoding>& encoding, const Operands& in,
                   const Tensor& expected) {
  SCOPED_TRACE(what);
  expect_near(output_of(*encoding, in), expected);
  expect_near(in_tiles(*encoding, in), expected);
}

Tensor list(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, default_device());
}
Tensor full(const Shape& shape, double value) { return Tensor::full(shape, value, DType::f64, default_device()); }
Tensor scores_of(const Operands& in) { return matmul(in.q, transpose(in.k, -1, -2), scale); }
Tensor causal() { return mask_tensor({}, tokens, DType::f64, default_device()); }

TEST_P(Reductions, AreOtherEncodings) {
  const Operands in;
  const Tensor plain = output_of(*make(encoding("none")), in);

  expect_output("carope starts as rope", make(encoding("carope")), in, output_of(*make(encoding("rope")), in));
  expect_output("carope starts as rope of its base", make(encoding("carope", {{"base", 50.0}})), in,
                output_of(*make(encoding("rope", {{"base", 50.0}})), in));

  const Tensor no_selector = full({head_width, width}, 0);
  expect_output(
      "a selector of zero masks nothing",
      make(encoding("selective", {{"selector", "projection"}}),
           {{"selective.selector.query.weight", no_selector}, {"selective.selector.key.weight", no_selector}}),
      in, plain);

  expect_output("the remainder's bias starts at zero", make(encoding("stick-breaking", {{"remainder", "bias"}})), in,
                output_of(*make(encoding("stick-breaking", {{"remainder", "drop"}})), in));

  // The strength is 2 sigmoid(bias), which is 0, or 2, to the last bit.
  const auto path = [](const Tensor& direction, double bias) {
    return make(encoding("path", {{"rank", 0}, {"conv", false}}), {{"path.direction.weight", direction},
                                                                   {"path.strength.weight", full({heads, width}, 0)},
                                                                   {"path.strength.bias", full({heads}, bias)}});
  };
  expect_output("path without strength is none", path(normal_tensor("direction", {width, width}), -1000), in, plain);

  // Operands [B, H, T, d] times a factor of token and channel.
  const auto none_of = [&](const std::function<double(std::int64_t t, std::int64_t n)>& factor) {
    std::vector<double> factors;
    for (std::int64_t n = 0; n < tokens * head_width; ++n) factors.push_back(factor(n / head_width, n % head_width));
    const Tensor of_tokens = Tensor::from(factors, {tokens, head_width}, default_device());
    Operands changed = in;
    changed.q = in.q * of_tokens;
    changed.k = in.k / of_tokens;
    return output_of(*make(encoding("none")), changed);
  };
  // Reflections of channel 0: every token between key and query changes the sign of its product.
  std::vector<double> direction(width * width);
  for (std::size_t h = 0; h < heads; ++h) direction[h * head_width * width] = 1e9;
  Operands positive = in;
  positive.x = abs(in.x) + 1.0;
  expect_output("reflections flip the sign", path(Tensor::from(direction, {width, width}, default_device()), 1000),
                positive, none_of([](auto t, auto n) { return n == 0 && t % 2 == 1 ? -1 : 1; }));

  // The score times the product of sigmoid(2) over the tokens between.
  expect_output(
      "wall of equal channels is a factor of the score",
      make(encoding("wall"), {{"wall.decay.weight", full({width, width}, 0)}, {"wall.decay.bias", full({width}, 2)}}),
      in, none_of([](auto t, auto) { return std::pow(1 / (1 + std::exp(-2.0)), t); }));

  // The count of keys is larger than the distance by the key itself, which cancels.
  Operands above = in, normed = in;
  above.q = abs(in.q);
  above.k = abs(in.k);
  normed.q = rms_norm(above.q);
  normed.k = rms_norm(above.k);
  const Tensor slopes = list({std::log1p(std::exp(-0.3)), std::log1p(std::exp(1.2))});
  expect_output("tra that no key fails is alibi",
                make(encoding("tra"),
                     {{"tra.threshold.weight", full({heads, width}, 0)}, {"tra.threshold.bias", list({0.3, -1.2})}}),
                above, output_of(*make(encoding("alibi", {{"learned", true}}), {{"alibi.slopes", slopes}}), normed));
}

TEST_P(Reductions, ThresholdRelativeAttentionThatEveryKeyFailsIsZero) {
  Operands in;
  in.k = abs(in.k);
  const Tensor above = abs(in.q);
  in.q = concat({slice(above, 2, 0, 30), negate(slice(above, 2, 30, 40)), slice(above, 2, 40, tokens)}, 2);
  const auto tra = make(encoding("tra"));
  for (const Tensor& output : {output_of(*tra, in), in_tiles(*tra, in)}) {
    expect_near(slice(output, 2, 30, 40), full({1, heads, 10, head_width}, 0), 0);
    for (const double number : slice(output, 2, 29, 30).to_vector<double>()) EXPECT_NE(number, 0);
  }
}

TEST_P(Reductions, SinksAreOneMoreKeyOrNone) {
  const Operands in;
  const auto sink = [](double logit) { return make(encoding("sink"), {{"sink.logit", full({heads}, logit)}}); };
  expect_output("a sink of no weight is none", sink(-1000), in, output_of(*make(encoding("none")), in));
  const Tensor e = masked_fill_zero(exp(scores_of(in)), causal());
  expect_output("a sink of 0 is softmax off by one", sink(0), in, matmul(e / (sum(e, {3}, true) + 1.0), in.v));
  const Tensor value = normal_tensor("value", {heads, head_width});
  const Tensor with_sink =
      softmax(concat({masked_fill_min(scores_of(in), causal()), full({1, heads, tokens, 1}, 0.7)}, 3));
  expect_output(
      "a sink with a value is one more key",
      make(encoding("sink", {{"remainder", "bias"}}), {{"sink.logit", full({heads}, 0.7)}, {"sink.remainder", value}}),
      in, matmul(with_sink, concat({in.v, reshape(value, {1, heads, 1, head_width})}, 2)));
}

// If its own key counts, a query is one place further.
TEST_P(Reductions, ContextualRotaryWithAllGatesOneIsRope) {
  const Operands in;
  const Tensor no_token = full({1, heads, 1, head_width}, 0);
  for (const std::string layout : {"half", "interleaved"}) {
    for (const bool own : {false, true}) {
      SCOPED_TRACE(formatted("{} {}", layout, own));
      const auto contextual = make(encoding("contextual-rotary", {{"layout", layout}, {"own", own}}));
      auto [operands, score] = testing::encoded_attention(*contextual, {in.x, in.q, in.k, in.v, scale});
      const Tensor gates = full({1, heads, tokens, 1}, 30);  // their sigmoid is 1 up to rounding
      score.score_mod->gates = {gates, gates};
      const Tensor found = matmul(causal_softmax(composed_logits(operands, score)), operands.v);

      const Tensor q = own ? concat({no_token, in.q}, 2) : concat({in.q, no_token}, 2), k = concat({in.k, no_token}, 2);
      const auto rope = make(encoding("rope", {{"layout", layout}}));
      const AttentionOperands rotated = testing::encoded_attention(*rope, {in.x, q, k, k, scale}).operands;
      const std::int64_t first = own ? 1 : 0;
      const Tensor rotated_q = slice(rotated.q, 2, first, first + tokens), rotated_k = slice(rotated.k, 2, 0, tokens);
      expect_near(found, tiled_attention({rotated_q, rotated_k, in.v, scale}, Score{}));
    }
  }
}

}  // namespace tally::reductions_test
