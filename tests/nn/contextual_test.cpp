// Properties of contextual positions, in addition to the tests of every encoding and their reference values.
#include <gtest/gtest.h>

#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::contextual_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

Tensor leaf(Tensor tensor) {
  set_requires_grad(tensor);
  return tensor;
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(to_text(a.shape()), to_text(b.shape()));
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], tolerance);
}

struct Operands {
  explicit Operands(const AttentionSizes& sizes)
      : x(leaf(normal_tensor("x", {sizes.batch, sizes.length, sizes.width()}))),
        q(leaf(normal_tensor("q", {sizes.batch, sizes.heads, sizes.length, sizes.head_width}))),
        k(leaf(normal_tensor("k", q.shape()))),
        v(leaf(normal_tensor("v", q.shape()))) {}
  Tensor output_of(const Encoding& encoding) const { return attention_output(encoding, x, q, k, v); }
  Tensor x, q, k, v;
};

class Contextual : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Contextual);

// The first step changes the tables and slopes, and does not change the gates.
TEST_P(Contextual, AtTheirStartAreNoEncodingAndLeaveTheGatesAlone) {
  const AttentionSizes sizes;
  const Operands plain(sizes);
  const Tensor expected = plain.output_of(*make_encoding(EncodingChoice::parse("none"), sizes, nullptr));
  const Tensor d_output = normal_tensor("d", expected.shape());
  backward(expected, d_output);

  struct Start {
    EncodingChoice choice;
    std::string learns;
    std::vector<std::string> waits = {};  // parameters whose gradients are 0
  };
  std::vector<Start> starts;
  starts.push_back({encoding("cope"), "cope.table"});
  starts.push_back({encoding("cope", {{"gates", "sep-keys"}}), "cope.table", {"cope.gate.weight", "cope.gate.bias"}});
  starts.push_back({encoding("cope", {{"gates", "values"}}), "cope.table"});
  starts.push_back({encoding("cope-alibi", {{"slopes", "learned"}}), "cope-alibi.slopes"});
  starts.push_back(
      {encoding("cope-mlp"), "cope-mlp.output.weight", {"cope-mlp.hidden.weight", "cope-mlp.hidden.bias"}});
  for (const Start& one : starts) {
    SCOPED_TRACE(one.choice.text());
    const Operands in(sizes);
    std::map<std::string, Tensor> parameters;
    const auto made =
        make_encoding(one.choice, sizes, [&](std::string_view name, const Shape& shape, const Fill& fill) {
          const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
          return parameters[std::string(name)] = leaf(start.make(name, shape, fill));
        });
    const Tensor output = in.output_of(*made);
    expect_near(output, expected, 1e-15);
    backward(output, d_output);
    expect_near(gradient(in.q), gradient(plain.q), 1e-15);
    expect_near(gradient(in.k), gradient(plain.k), 1e-15);
    expect_near(gradient(in.v), gradient(plain.v), 1e-15);
    EXPECT_GT(sum(abs(gradient(parameters.at(one.learns)))).item(), 1e-3);
    for (const std::string& name : one.waits) EXPECT_EQ(sum(abs(gradient(parameters.at(name)))).item(), 0) << name;
  }
}

// Gate keys of zeros makes all gates 0.5 and every second position an integer, where the interpolation has a kink.
// With q positive, moving their bias up moves all positions up: the derivative is the right-hand one.
TEST_P(Contextual, TableHasTheRightHandDerivativeAtIntegers) {
  constexpr double eps = 1e-7;
  const AttentionSizes sizes;
  Operands in(sizes);
  in.x = Tensor::zeros(in.x.shape(), DType::f64, default_device());
  in.q = abs(in.q.detach());
  const Tensor table = normal_tensor("table", {65, sizes.head_width});
  const Tensor weight = normal_tensor("weight", {sizes.width(), sizes.width()});
  const Tensor d_output = normal_tensor("d", in.q.shape());
  const auto loss = [&](const Tensor& bias) {
    const auto cope = make_encoding(encoding("cope", {{"gates", "sep-keys"}}), sizes,
                                    [&](std::string_view name, const Shape&, const Fill&) {
                                      return name == "cope.table" ? table : name == "cope.gate.bias" ? bias : weight;
                                    });
    return sum(in.output_of(*cope) * d_output);
  };
  const Tensor bias = leaf(Tensor::zeros({sizes.width()}, DType::f64, default_device()));
  const Tensor at_kink = loss(bias);
  backward(at_kink);
  const double by_backward = sum(gradient(bias)).item();

  const NoGrad only_values;
  const auto moved = [&](double step) {
    return loss(Tensor::full({sizes.width()}, step, DType::f64, default_device())).item();
  };
  const double here = at_kink.item();
  const double right = (moved(eps) - here) / eps;
  const double left = (here - moved(-eps)) / eps;
  EXPECT_NEAR(by_backward, right, 1e-5);
  EXPECT_GT(std::abs(right - left), 1e-2);  // there is a kink
}

// If layer 0 has no network, no layer would have one.
TEST(CopeMlp, OfTheFirstLayerIsInNoOther) {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = 2;
  const auto model_of = [&](const char* text) {
    return Transformer(options, encoding(text, {{"cope-mlp.layers", "first"}}), 5, 6, 1).parameters();
  };
  for (const auto& [path, parameter] : model_of("cope-mlp")) {
    EXPECT_FALSE(path.starts_with("blocks.1.position")) << path;
  }
  EXPECT_NO_THROW(model_of("0:alibi@0,cope-mlp@1,1:cope-mlp"));
  const std::string refused = testing::error_of([&] { model_of("0:none,1:cope-mlp@0,alibi@1"); });
  EXPECT_NE(refused.find("it would act nowhere"), std::string::npos) << refused;
}

}  // namespace tally::contextual_test
