// Properties of contextual rotary positions, in addition to the tests of every encoding.
#include <gtest/gtest.h>

#include "nn/encoding/rotary.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::contextual_rotary_test {

using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

constexpr std::int64_t tokens = 37, dims = 6;

Tensor leaf(Tensor tensor) {
  set_requires_grad(tensor);
  return tensor;
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], tolerance) << n;
}

struct Operands {
  Tensor q = leaf(normal_tensor("q", {2, 2, tokens, dims})), k = leaf(normal_tensor("k", {2, 2, tokens, dims})),
         v = leaf(normal_tensor("v", {2, 2, tokens, dims}));
};

class ContextualRotary : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(ContextualRotary);

// The result of the encoding with gates that are exactly 1.
Tensor with_open_gates(const Operands& in, const std::string& layout, const std::string& own,
                       const std::string& rotary_dims) {
  EncodingChoice choice = EncodingChoice::parse("contextual-rotary");
  choice.set_option("layout", layout);
  choice.set_option("own", own);
  choice.set_option("rotary-dims", rotary_dims);
  AttentionSizes sizes;
  sizes.batch = 2, sizes.heads = 2, sizes.length = tokens, sizes.head_width = dims;
  const auto encoding = make_encoding(choice, sizes, nullptr);
  const Tensor x = normal_tensor("x", {2, tokens, 2 * dims});
  const AttentionInput input{x, in.q, in.k, in.v, 1 / std::sqrt(static_cast<double>(dims))};
  auto [operands, score] = testing::encoded_attention(*encoding, input);
  const Tensor large = Tensor::full({2, 2, tokens, 1}, 30.0, DType::f64, default_device());
  score.score_mod->gates = {large, large};
  const Tensor weights = causal_softmax(composed_logits(operands, score));
  return matmul(weights, operands.v);
}

// The same planes rotated token by token; q as if it were `ahead` tokens later.
Tensor as_rope(const Operands& in, const std::string& layout, std::int64_t ahead, std::int64_t turned) {
  const Rotary rotary(rotary_planes(turned, 10000), 1, layout == "interleaved", tokens + 1, DType::f64,
                      default_device());
  const AttentionOperands operands{rotary.rotate(in.q, ahead), rotary.rotate(in.k, 0), in.v,
                                   1 / std::sqrt(static_cast<double>(dims))};
  return tiled_attention(operands, Score{});
}

TEST_P(ContextualRotary, WithAllGatesOneIsRopeWithTheQueryOnePlaceFurtherIfItsOwnKeyCounts) {
  const Tensor d_output = normal_tensor("d", {2, 2, tokens, dims});
  for (const std::string layout : {"half", "interleaved"}) {
    for (const bool own : {false, true}) {
      for (const std::int64_t turned : {dims, std::int64_t{4}}) {
        SCOPED_TRACE(formatted("{}{}{}", layout, own ? " own " : " ", turned));
        const Operands contextual, plain;
        const Tensor found =
            with_open_gates(contextual, layout, own ? "true" : "false", std::to_string(turned == dims ? 0 : turned));
        const Tensor expected = as_rope(plain, layout, own ? 1 : 0, turned);
        expect_near(found, expected, 1e-12);
        backward(found, d_output);
        backward(expected, d_output);
        expect_near(gradient(contextual.q), gradient(plain.q), 1e-11);
        expect_near(gradient(contextual.k), gradient(plain.k), 1e-11);
        expect_near(gradient(contextual.v), gradient(plain.v), 1e-12);
      }
    }
  }
}

}  // namespace tally::contextual_rotary_test
