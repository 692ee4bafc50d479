// Properties of cope-alibi, cope-mlp, fox, fox-pro and stick-breaking, in addition to the tests of every encoding.
#include <gtest/gtest.h>

#include "tests/error_of.hpp"
#include "tests/nn/given_parameters.hpp"

namespace tally::contextual_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::encoding_with;
using testing::make_encoding;
using testing::normal_tensor;

using Values = std::map<std::string, std::string>;
using testing::Parameters;

// An encoding with these parameters; all others have their initial values.
std::unique_ptr<Encoding> make(const std::string& name, const Values& options, const AttentionSizes& sizes,
                               const Parameters& parameters = {}) {
  EncodingChoice choice = EncodingChoice::parse(name);
  for (const auto& [option, value] : options) choice.set_option(option, value);
  return encoding_with(choice, sizes, parameters);
}

struct Operands {
  explicit Operands(const AttentionSizes& sizes)
      : x(normal_tensor("x", {sizes.batch, sizes.length, sizes.width()})),
        q(normal_tensor("q", {sizes.batch, sizes.heads, sizes.length, sizes.head_width})),
        k(normal_tensor("k", q.shape())),
        v(normal_tensor("v", q.shape())) {}
  // All gates 1 to the last bit: products of about 20 * 20 * 4 / 2.
  Operands& open_gates() {
    q = add(multiply(q, 0.1), 20.0);
    k = add(multiply(k, 0.1), 20.0);
    return *this;
  }
  Tensor output_of(const Encoding& encoding, AttentionTrace* trace = nullptr) const {
    return attention_output(encoding, x, q, k, v, trace);
  }
  Tensor x, q, k, v;
};

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(to_text(a.shape()), to_text(b.shape()));
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], tolerance);
}

Tensor list(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, default_device());
}

class CopeAlibi : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(CopeAlibi);
class CopeMlp : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(CopeMlp);
class Fox : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Fox);
class FoxPro : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(FoxPro);
class StickBreaking : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(StickBreaking);
class Gates : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Gates);
class RotatedQuery : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(RotatedQuery);

// Then p_ij = i-j+1: the slopes of ALiBi by distance, and one more step, which a row's softmax cancels.
TEST_P(CopeAlibi, WithAllGatesOneIsAlibi) {
  const AttentionSizes sizes;
  const Operands in = Operands(sizes).open_gates();
  const Tensor expected = in.output_of(*make("alibi", {}, sizes));
  expect_near(in.output_of(*make("cope-alibi", {{"slopes", "alibi"}, {"sign", "minus"}}, sizes)), expected, 1e-12);

  const auto with_slopes = [&](const std::vector<double>& slopes) {
    return in.output_of(*make("alibi", {{"learned", "true"}}, sizes, {{"alibi.slopes", list(slopes)}}));
  };
  expect_near(in.output_of(*make("cope-alibi", {}, sizes)), with_slopes({-1, -0.5}), 1e-12);
  expect_near(in.output_of(*make("cope-alibi", {{"sign", "minus"}, {"first-slope", "0.3"}}, sizes)),
              with_slopes({0.3, 0.15}), 1e-12);
  expect_near(
      in.output_of(*make("cope-alibi", {{"slopes", "learned"}}, sizes, {{"cope-alibi.slopes", list({-0.7, 0.2})}})),
      with_slopes({0.7, -0.2}), 1e-12);
}

// Positions beyond P count as P: with all gates 1 the slope ends there.
TEST_P(CopeAlibi, StopsAtItsLargestPosition) {
  const AttentionSizes sizes;
  const Operands in = Operands(sizes).open_gates();
  AttentionTrace limited, plain;
  in.output_of(*make("cope-alibi", {{"p-max", "3"}}, sizes), &limited);
  in.output_of(*make("none", {}, sizes), &plain);
  const auto ratio = [&](const AttentionTrace& trace,
                         std::int64_t key) {  // of the last row, head 0, to the token's own
    const std::vector<double> row = select(select(select(trace.weights, 0, 0), 0, 0), 0, 4).to_vector<double>();
    return row[static_cast<std::size_t>(key)] / row[4];
  };
  for (const std::int64_t key : {0, 1, 2, 3}) {
    const double rise = std::min<double>(static_cast<double>(5 - key), 3) - 1;
    EXPECT_NEAR(ratio(limited, key) / ratio(plain, key), std::exp(rise), 1e-9 * std::exp(rise)) << key;
  }
}

TEST_P(CopeAlibi, LearnedSlopesStartAsNoEncoding) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  EXPECT_EQ(in.output_of(*make("cope-alibi", {{"slopes", "learned"}}, sizes)).to_vector<double>(),
            in.output_of(*make("none", {}, sizes)).to_vector<double>());
}

// f(p) written out for each pair, [B, H, T, T, d], from the definition of the network.
TEST_P(CopeMlp, IsTheNetworkAtEveryPosition) {
  AttentionSizes sizes;
  sizes.batch = 2;
  const Operands in(sizes);
  const Parameters parameters{{"cope-mlp.hidden.weight", normal_tensor("w1", {3})},
                              {"cope-mlp.hidden.bias", normal_tensor("b1", {3})},
                              {"cope-mlp.output.weight", normal_tensor("W2", {sizes.head_width, 3})},
                              {"cope-mlp.output.bias", normal_tensor("b2", {sizes.head_width})}};
  AttentionTrace trace;
  const Tensor output = in.output_of(*make("cope-mlp", {{"hidden", "3"}}, sizes, parameters), &trace);

  const Tensor s = matmul(in.q, transpose(in.k, -1, -2), 0.5);
  expect_near(trace.positions, causal_suffix_sum(sigmoid(s)), 1e-14);
  const Tensor hidden = relu(unsqueeze(trace.positions, 4) * parameters.at("cope-mlp.hidden.weight") +
                             parameters.at("cope-mlp.hidden.bias"));
  const Tensor f = linear(hidden, parameters.at("cope-mlp.output.weight"), parameters.at("cope-mlp.output.bias"));
  const Tensor logits = s + sum(unsqueeze(in.q, 3) * f, {4});
  expect_near(output, matmul(causal_softmax(logits), in.v), 1e-12);
}

TEST_P(CopeMlp, StartsAsNoEncodingAndLeavesTheGatesAlone) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  Parameters parameters;
  const auto encoding = make_encoding(
      EncodingChoice::parse("cope-mlp"), sizes, [&](std::string_view name, const Shape& shape, const Fill& fill) {
        Tensor& made = parameters[std::string(name)];
        made = Initializer(1, StartValues::gpt2, DType::f64, default_device()).make(name, shape, fill);
        set_requires_grad(made);
        return made;
      });
  const Tensor output = in.output_of(*encoding);
  expect_near(output, in.output_of(*make("none", {}, sizes)), 1e-15);
  backward(output, normal_tensor("d", output.shape()));
  EXPECT_EQ(sum(abs(gradient(parameters.at("cope-mlp.hidden.weight")))).item(), 0);
  EXPECT_GT(sum(abs(gradient(parameters.at("cope-mlp.output.weight")))).item(), 1e-3);
}

TEST_P(CopeMlp, OfTheFirstLayerLeavesTheOthersWithoutEncoding) {
  const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
  EncodingChoice choice = EncodingChoice::parse("cope-mlp");
  choice.set_option("layers", "first");
  for (const std::int64_t layer : {0, 1, 2}) {
    int parameters = 0;
    ModelOptions model;
    model.width = 4, model.heads = 1, model.layers = 3;
    EncodingSetup setup = EncodingSetup::of(model, 4, start);
    setup.layer = layer;
    setup.parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
      ++parameters;
      return start.make(name, shape, fill);
    };
    choice.make(setup);
    EXPECT_EQ(parameters, layer == 0 ? 4 : 0) << layer;
  }
}

// If layer 0 has no network, no layer would have one.
TEST_P(CopeMlp, OfTheFirstLayerIsRefusedWhereThatHasNone) {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = 2;
  for (const std::string text : {"0:none,1:cope-mlp", "0:none,1:cope-mlp@0,alibi@1"}) {
    EncodingChoice choice = EncodingChoice::parse(text);
    choice.set_option("cope-mlp.layers", "first");
    const std::string refused = testing::error_of([&] { Transformer(options, choice, 5, 6, 1); });
    EXPECT_NE(refused.find("it would act nowhere"), std::string::npos) << text << ": " << refused;
  }
  EncodingChoice choice = EncodingChoice::parse("0:alibi@0,cope-mlp@1,1:cope-mlp");
  choice.set_option("cope-mlp.layers", "first");
  EXPECT_NO_THROW(Transformer(options, choice, 5, 6, 1));
}

// f the same at every token: a linear bias with slope -log f.
TEST_P(Fox, WithConstantGatesIsALinearBias) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const std::vector<double> bias{0.3, -1.2};
  std::vector<double> slopes;
  for (const double b : bias) slopes.push_back(std::log1p(std::exp(-b)));
  const auto fox =
      make("fox", {}, sizes,
           {{"fox.forget.weight", Tensor::zeros({sizes.heads, sizes.width()}, DType::f64, default_device())},
            {"fox.forget.bias", list(bias)}});
  const auto alibi = make("alibi", {{"learned", "true"}}, sizes, {{"alibi.slopes", list(slopes)}});
  expect_near(in.output_of(*fox), in.output_of(*alibi), 1e-14);
}

// A gate that closes at token t masks all tokens before t, for t and all later queries. It does not mask t.
TEST_P(Fox, AClosedGateHidesWhatCameBefore) {
  AttentionSizes sizes;
  sizes.heads = 1;
  Operands in(sizes);
  in.x = Tensor::zeros(in.x.shape(), DType::f64, default_device());
  in.x.detached_slice(1, 3, 4).fill(-1e3);
  const auto fox = make("fox", {}, sizes,
                        {{"fox.forget.weight", Tensor::full({1, sizes.width()}, 1, DType::f64, default_device())},
                         {"fox.forget.bias", list({50})}});  // open, to the last bit, where x is 0
  const Tensor found = in.output_of(*fox);
  Operands late = in;
  for (Tensor* part : {&late.x, &late.q, &late.k, &late.v}) *part = slice(*part, part->rank() - 2, 3, sizes.length);
  const auto none = make("none", {}, sizes);
  expect_near(slice(found, 2, 3, sizes.length), late.output_of(*none), 1e-14);
  expect_near(slice(found, 2, 0, 3), slice(in.output_of(*none), 2, 0, 3), 1e-14);
}

// Shifts that take nothing from the token before, and a half-open output gate: only the norms remain.
TEST_P(FoxPro, NormsEachHead) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const Tensor x = Tensor::full(in.x.shape(), 1, DType::f64, default_device());
  const Tensor shift = Tensor::full({sizes.heads, sizes.width()}, -100, DType::f64, default_device());
  const Tensor weight = normal_tensor("weight", {sizes.heads, sizes.head_width});
  const auto fox_pro = make("fox-pro", {}, sizes,
                            {{"fox-pro.key-shift.weight", shift},
                             {"fox-pro.value-shift.weight", shift},
                             {"fox-pro.key-norm.weight", weight},
                             {"fox-pro.output-gate.weight", Tensor::zeros({8, 8}, DType::f64, default_device())}});
  const auto normed = [](const Tensor& t) { return t / sqrt(mean(square(t), {3}, true) + 1e-6); };
  const AttentionInput given{x, in.q, in.k, in.v, 0.5};
  Tensor q = in.q, k = in.k, v = in.v;
  fox_pro->rotate(q, k, v, given);
  expect_near(q, normed(in.q), 1e-14);
  expect_near(k, normed(in.k) * unsqueeze(weight, 1), 1e-14);
  expect_near(v, in.v, 1e-14);
  expect_near(fox_pro->finish(in.v, given), normed(in.v) * 0.5, 1e-14);
}

// Shifts that take everything from the token before: its row as projected, not its shifted one, and 0 before token 0.
TEST_P(FoxPro, ShiftsByOneToken) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const Tensor x = Tensor::full(in.x.shape(), 1, DType::f64, default_device());
  const Tensor weight = Tensor::full({sizes.heads, sizes.width()}, 100, DType::f64, default_device());
  const auto fox_pro =
      make("fox-pro", {}, sizes, {{"fox-pro.key-shift.weight", weight}, {"fox-pro.value-shift.weight", weight}});
  Tensor q = in.q, k = in.k, v = in.v;
  fox_pro->rotate(q, k, v, {x, in.q, in.k, in.v, 0.5});
  expect_near(slice(v, 2, 1, sizes.length), slice(in.v, 2, 0, sizes.length - 1), 1e-14);
  expect_near(slice(v, 2, 0, 1), Tensor::zeros({1, 2, 1, 4}, DType::f64, default_device()), 1e-14);
}

TEST_P(StickBreaking, WeightsAreSharesOfWhatIsLeft) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const std::vector<double> s = matmul(in.q, transpose(in.k, -1, -2), 0.5).to_vector<double>();
  for (const bool current : {false, true}) {
    AttentionTrace trace;
    in.output_of(*make("stick-breaking", {{"attend-current", current ? "true" : "false"}}, sizes), &trace);
    const std::vector<double> weights = trace.weights.to_vector<double>();
    for (std::size_t row = 0; row < 10; ++row) {
      const std::size_t i = row % 5;
      double left = 1;
      for (std::size_t j = 5; j-- > 0;) {
        const double share = j < i || (current && j == i) ? 1 / (1 + std::exp(-s[row * 5 + j])) : 0;
        EXPECT_NEAR(weights[row * 5 + j], left * share, 1e-14) << row << " " << j;
        left *= 1 - share;
      }
    }
  }
}

// With values that are all 1, weights and remainder add up to 1.
TEST_P(StickBreaking, SpendsTheWholeStick) {
  const AttentionSizes sizes;
  Operands in(sizes);
  in.v = Tensor::full(in.v.shape(), 1, DType::f64, default_device());
  const Tensor ones = Tensor::full({sizes.heads, sizes.head_width}, 1, DType::f64, default_device());
  for (const std::string current : {"false", "true"}) {
    for (const std::string remainder : {"value", "bias"}) {
      const auto encoding = make("stick-breaking", {{"remainder", remainder}, {"attend-current", current}}, sizes,
                                 {{"stick-breaking.remainder", ones}});
      expect_near(in.output_of(*encoding), in.v, 1e-14);
    }
  }
}

TEST_P(StickBreaking, FirstTokenGetsTheRemainderAlone) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const Tensor bias = normal_tensor("bias", {sizes.heads, sizes.head_width});
  const std::map<std::string, Tensor> expected{{"drop", Tensor::zeros({1, 2, 4}, DType::f64, default_device())},
                                               {"value", select(in.v, 2, 0)},
                                               {"bias", unsqueeze(bias, 0)}};
  for (const auto& [remainder, row] : expected) {
    const auto encoding =
        make("stick-breaking", {{"remainder", remainder}}, sizes, {{"stick-breaking.remainder", bias}});
    expect_near(select(in.output_of(*encoding), 2, 0), row, 1e-15);
  }
}

TEST_P(StickBreaking, BiasOfTheRemainderStartsAsDropping) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  expect_near(in.output_of(*make("stick-breaking", {{"remainder", "bias"}}, sizes)),
              in.output_of(*make("stick-breaking", {}, sizes)), 1e-15);
}

// Gates use only the score of q and k, without the terms of other encodings.
TEST_P(Gates, NeverSeeWhatAnotherEncodingBrings) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const auto parameter = [](std::string_view own, const Shape& shape, const Fill&) {
    return normal_tensor(own, shape);
  };
  for (const std::string name : {"cope", "cope-alibi", "cope-mlp"}) {
    AttentionTrace alone;
    in.output_of(*make_encoding(EncodingChoice::parse(name), sizes, parameter), &alone);
    for (const std::string other : {"nexus", "relative", "transformer-xl", "fox"}) {
      SCOPED_TRACE(name + "+" + other);
      AttentionTrace beside;
      in.output_of(*make_encoding(EncodingChoice::parse(name + "+" + other), sizes, parameter), &beside);
      EXPECT_EQ(beside.gates.to_vector<double>(), alone.gates.to_vector<double>());
      EXPECT_NE(beside.weights.to_vector<double>(), alone.weights.to_vector<double>());
    }
  }
}

// In a combination with a rotation, the position term and gates with separate sources use the projected q, or the
// rotated one.
TEST_P(RotatedQuery, IsWhatTheOptionSays) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const auto rope = make("rope", {}, sizes);
  Operands rotated = in;
  rope->rotate(rotated.q, rotated.k, rotated.v, {in.x, in.q, in.k, in.v, 0.5});
  for (const std::string name : {"cope", "cope-alibi", "cope-mlp", "relative"}) {
    SCOPED_TRACE(name);
    const auto parameter = [&](std::string_view own, const Shape& shape, const Fill&) {
      return normal_tensor(own, shape);
    };
    Values options;
    if (name != "relative") options["gates"] = "sep-keys";
    const auto choice_of = [&](const std::string& text, const std::string& on) {
      EncodingChoice choice = EncodingChoice::parse(text);
      for (const auto& [option, value] : options) choice.set_option(option, value);
      choice.set_option("rotated-query", on);
      return choice;
    };
    const auto alone = make_encoding(choice_of(name, "false"), sizes, parameter);
    const auto with_rope = make_encoding(choice_of(name + "+rope", "true"), sizes, parameter);
    const auto by_default = make_encoding(choice_of(name + "+rope", "false"), sizes, parameter);
    // Gate keys, values and x are not rotated. So the same encoding without the rotation, given rotated q and k as
    // projected ones, gives the same result.
    const Tensor expected = attention_output(*alone, in.x, rotated.q, rotated.k, in.v);
    expect_near(in.output_of(*with_rope), expected, 1e-13);
    EXPECT_GT(max(reshape(abs(in.output_of(*by_default) - expected), {40}), 0).item(), 1e-3);
  }
}

}  // namespace tally::contextual_test
