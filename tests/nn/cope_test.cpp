// Properties of contextual positions, in addition to the tests of every encoding.
#include <gtest/gtest.h>

#include <map>

#include "tests/nn/encoding_cases.hpp"

namespace tally::cope_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

using Values = std::map<std::string, std::string>;

EncodingChoice choice_of(const std::string& name, const Values& options = {}) {
  EncodingChoice choice = EncodingChoice::parse(name);
  for (const auto& [option, value] : options) choice.set_option(option, value);
  return choice;
}

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
  Tensor x, q, k, v;
};

class Cope : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Cope);

TEST_P(Cope, WithAllGatesOneIsRelativeShiftedByOneRow) {
  AttentionSizes sizes;
  sizes.batch = 2;
  Operands in(sizes);
  // Products of about 16 * 25 * 4 / 2: their sigmoid is 1 to the last bit.
  in.q = add(multiply(in.q, 0.1), 20.0);
  in.k = add(multiply(in.k, 0.1), 20.0);
  const Tensor rows = normal_tensor("rows", {sizes.length, sizes.head_width});
  const auto relative =
      make_encoding(choice_of("relative"), sizes, [&](std::string_view, const Shape&, const Fill&) { return rows; });
  const Tensor expected = attention_output(*relative, in.x, in.q, in.k, in.v);

  // The row of position 0 is never read: the token itself counts as one step.
  const Tensor zero_row = Tensor::full({1, sizes.head_width}, 1e3, DType::f64, default_device());
  for (const std::string scale : {"sqrt-d", "none"}) {
    const double factor = scale == "none" ? 0.5 : 1.0;  // 1/sqrt(d)
    const Tensor table = concat({zero_row, rows * factor}, 0);
    const auto cope = make_encoding(choice_of("cope", {{"p-max", "5"}, {"position-scale", scale}}), sizes,
                                    [&](std::string_view, const Shape&, const Fill&) { return table; });
    AttentionTrace trace;
    expect_near(attention_output(*cope, in.x, in.q, in.k, in.v, &trace), expected, 1e-12);
    const std::vector<double> positions = trace.positions.to_vector<double>();
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t j = 0; j <= i; ++j) EXPECT_EQ(positions[i * 5 + j], static_cast<double>(i - j + 1));
    }
  }
}

TEST_P(Cope, AtItsStartIsNoEncodingAndLeavesTheGatesAlone) {
  const AttentionSizes sizes;
  const auto none = make_encoding(choice_of("none"), sizes, nullptr);
  const Operands plain(sizes);
  const Tensor expected = attention_output(*none, plain.x, plain.q, plain.k, plain.v);
  const Tensor d_output = normal_tensor("d", expected.shape());
  backward(expected, d_output);

  for (const std::string gates : {"keys", "sep-keys", "values"}) {
    SCOPED_TRACE(gates);
    const Operands in(sizes);
    std::map<std::string, Tensor> parameters;
    const auto cope = make_encoding(choice_of("cope", {{"gates", gates}}), sizes,
                                    [&](std::string_view name, const Shape& shape, const Fill& fill) {
                                      const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
                                      return parameters[std::string(name)] = leaf(start.make(name, shape, fill));
                                    });
    const Tensor output = attention_output(*cope, in.x, in.q, in.k, in.v);
    EXPECT_EQ(output.to_vector<double>(), expected.to_vector<double>());
    backward(output, d_output);
    expect_near(gradient(in.q), gradient(plain.q), 1e-15);
    expect_near(gradient(in.k), gradient(plain.k), 1e-15);
    expect_near(gradient(in.v), gradient(plain.v), 1e-15);
    EXPECT_GT(sum(abs(gradient(parameters.at("cope.table")))).item(), 1e-3);
    if (gates == "sep-keys") {
      EXPECT_EQ(sum(abs(gradient(parameters.at("cope.gate.weight")))).item(), 0);
      EXPECT_EQ(sum(abs(gradient(parameters.at("cope.gate.bias")))).item(), 0);
    }
  }
}

// Gate keys of zeros makes all gates 0.5 and every second position an integer, where the interpolation has a kink.
// With q positive, moving their bias up moves all positions up: the derivative is the right-hand one.
TEST_P(Cope, TakesTheRightHandDerivativeAtIntegers) {
  constexpr double eps = 1e-7;
  const AttentionSizes sizes;
  Operands in(sizes);
  in.x = Tensor::zeros(in.x.shape(), DType::f64, default_device());
  in.q = abs(in.q.detach());
  const Tensor table = normal_tensor("table", {65, sizes.head_width});
  const Tensor weight = normal_tensor("weight", {sizes.width(), sizes.width()});
  const Tensor d_output = normal_tensor("d", in.q.shape());
  const auto loss = [&](const Tensor& bias) {
    const auto cope = make_encoding(choice_of("cope", {{"gates", "sep-keys"}}), sizes,
                                    [&](std::string_view name, const Shape&, const Fill&) {
                                      return name == "cope.table" ? table : name == "cope.gate.bias" ? bias : weight;
                                    });
    return sum(attention_output(*cope, in.x, in.q, in.k, in.v) * d_output);
  };
  const Tensor bias = leaf(Tensor::zeros({sizes.width()}, DType::f64, default_device()));
  const Tensor at_kink = loss(bias);
  backward(at_kink);
  const double by_backward = sum(gradient(bias)).item();

  const NoGrad only_values;
  const double here = at_kink.item();
  const double right = (loss(Tensor::full({sizes.width()}, eps, DType::f64, default_device())).item() - here) / eps;
  const double left = (here - loss(Tensor::full({sizes.width()}, -eps, DType::f64, default_device())).item()) / eps;
  EXPECT_NEAR(by_backward, right, 1e-5);
  EXPECT_GT(std::abs(right - left), 1e-2);  // there is a kink
}

// Beyond P all keys of a row get the constant z_i[P] and send nothing to the gates.
TEST_P(Cope, IsConstantBeyondTheTable) {
  constexpr std::int64_t length = 9, width = 4, last = 2;
  const Tensor q = normal_tensor("q", {1, 1, length, width});
  const Tensor k = normal_tensor("k", q.shape());
  const Tensor operand = leaf(normal_tensor("gates", q.shape(), 0.1));  // gates near 0.5
  const Tensor z = leaf(normal_tensor("z", {1, 1, length, last + 1}));
  Score score;
  score.add_score_mod(contextual_table(z, {q, operand}));
  AttentionTrace trace;
  const Tensor logits = composed_logits({q, k, k, 0.5}, score, &trace);
  const Tensor bias = logits.detach() - matmul(q, transpose(k, -1, -2), 0.5);

  // Only the last row has a gradient: 1 for each of its logits.
  Tensor d_logits = Tensor::zeros(logits.shape(), DType::f64, default_device());
  d_logits.detached_slice(2, length - 1, length).fill(1);
  backward(logits, d_logits);
  const std::vector<double> positions =
      select(select(select(trace.positions, 0, 0), 0, 0), 0, length - 1).to_vector<double>();
  const std::vector<double> d_operand = sum(abs(gradient(operand)), {3}).to_vector<double>();
  const std::vector<double> last_row = select(select(select(bias, 0, 0), 0, 0), 0, length - 1).to_vector<double>();
  const std::vector<double> table = z.to_vector<double>();
  std::int64_t saturated = 0;
  for (std::size_t j = 0; j < length; ++j) {
    // A key before the first saturated position changes no position below P by its gate.
    if (positions[j] >= last) {
      ++saturated;
      EXPECT_NEAR(last_row[j], table[static_cast<std::size_t>((length - 1) * (last + 1) + last)], 1e-14);
      EXPECT_EQ(d_operand[j], 0) << j;
    } else {
      EXPECT_GT(d_operand[j], 0) << j;
    }
  }
  EXPECT_GE(saturated, 3);
  EXPECT_LT(saturated, length);
  // Each of the saturated keys puts its whole gradient on the last entry of the table's row.
  EXPECT_GE(gradient(z).to_vector<double>().back(), static_cast<double>(saturated));
}

TEST_P(Cope, TracePutsZeroAboveTheDiagonal) {
  const AttentionSizes sizes;
  const Operands in(sizes);
  const auto cope = make_encoding(choice_of("cope"), sizes, [](std::string_view name, const Shape& shape, const Fill&) {
    return normal_tensor(name, shape);
  });
  AttentionTrace trace;
  attention_output(*cope, in.x, in.q, in.k, in.v, &trace);
  for (const Tensor& traced : {trace.gates, trace.positions, trace.weights}) {
    EXPECT_FALSE(requires_grad(traced));
    const std::vector<double> values = traced.to_vector<double>();
    const auto length = static_cast<std::size_t>(sizes.length);
    for (std::size_t n = 0; n < values.size(); ++n) {
      const std::size_t i = n / length % length, j = n % length;
      if (j > i) {
        EXPECT_EQ(values[n], 0);
      } else {
        EXPECT_GT(values[n], 0);
      }
    }
  }
}

TEST_P(Cope, SharesItsTableAsAsked) {
  AttentionSizes sizes;
  sizes.heads = 3;
  const std::map<std::string, Shape> expected{{"heads", {5, 4}}, {"layers", {5, 4}}, {"none", {3, 5, 4}}};
  for (const auto& one : expected) {
    make_encoding(choice_of("cope", {{"share", one.first}, {"p-max", "4"}}), sizes,
                  [&](std::string_view name, const Shape& asked, const Fill& fill) {
                    EXPECT_EQ(to_text(asked), to_text(one.second));
                    EXPECT_EQ(fill.kind, Fill::Kind::constant);
                    return Initializer(1, StartValues::gpt2, DType::f64, default_device()).make(name, asked, fill);
                  });
  }
}

}  // namespace tally::cope_test
