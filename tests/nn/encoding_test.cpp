// Tests of every encoding, with each value of its options. No encoding is named here.
#include <gtest/gtest.h>

#include "autograd/gradcheck.hpp"
#include "tests/nn/refusals.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::encoding_test {

using testing::cases_here;
using testing::EncodingCase;
using testing::make_encoding;
using testing::normal_tensor;
using testing::some_tokens;
using testing::together_cases;
using testing::vocabulary;

class Encodings : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Encodings);

Tensor next_token_loss(Transformer& model, const Tensor& tokens) {
  const Tensor mask = Tensor::full(tokens.shape(), 1, DType::boolean, default_device());
  return cross_entropy(model.forward(tokens), tokens, mask);
}

// A model of this case with parameters off their start, because gradients vanish at some of them (a table of zeros).
std::unique_ptr<Transformer> make_model(const EncodingCase& one, std::int64_t max_length, DType dtype = DType::f64) {
  return testing::make_small_model(one.choice, "tiled", max_length, 0, dtype);
}

// Whether the model of this case works for sequences of this length. If not, the error must name a smaller number.
bool takes(const EncodingCase& one, Transformer& model, std::int64_t length, std::int64_t max_length) {
  const NoGrad only_the_value;
  try {
    model.forward(some_tokens(length));
    return true;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(testing::refused(one.choice, length, max_length)) << text;
    bool names_limit = false;
    for (std::int64_t limit = 1; limit < length; ++limit) {
      names_limit = names_limit || text.find(formatted(" {} ", limit)) != std::string::npos;
    }
    EXPECT_TRUE(names_limit) << text;
    return false;
  }
}

// Encodings together.
std::vector<EncodingCase> some_together() {
  return testing::every(default_device() == testing::on_cuda_host ? 40 : 4, together_cases());
}

// Of encodings together; none when they must refuse each other or this length.
std::unique_ptr<Transformer> make_together(const EncodingCase& one, std::int64_t length, DType dtype = DType::f64) {
  const NoGrad only_the_value;
  return testing::unless_refused(one, length, length, [&] {
    auto model = make_model(one, length, dtype);
    model->forward(some_tokens(length));
    return model;
  });
}

TEST(EncodingRegistry, HasAllThatIsPrinted) {
  ASSERT_FALSE(encoding_registry().empty());
  for (const EncodingEntry* entry : encoding_registry()) {
    EXPECT_FALSE(entry->summary.empty() || entry->formula.empty() || entry->paper.empty()) << entry->name;
    for (const OptionInfo& info : list_options(*entry->make_options())) EXPECT_FALSE(info.help.empty()) << info.name;
  }
}

// With default options. All others go on beyond the trained length.
TEST(EncodingRegistry, NamesThoseThatEndAtTheTrainedLength) {
  std::set<std::string> ending;
  for (const EncodingCase& one : testing::plain_singles()) {
    if (testing::refused(one.choice, 13, 8)) ending.insert(one.label);
  }
  EXPECT_EQ(ending, (std::set<std::string>{"absolute", "relative"}));
}

// The Jacobian of the attention output (and of the embedding) by x, q, k, v and the parameters. On other devices than
// the CPU, whose launches take their time, only along a random direction.
TEST_P(Encodings, HaveTheGradientsOfCentralDifferences) {
  const testing::AttentionSizes sizes;
  const Shape head_shape{sizes.batch, sizes.heads, sizes.length, sizes.head_width};
  const std::int64_t full_limit = GetParam() == Device{} ? 100'000 : 0;
  for (const EncodingCase& one : testing::plain_and_changed_cases()) {
    SCOPED_TRACE(one.label);
    if (testing::refused(one.choice, sizes.length, sizes.max_length)) continue;
    std::vector<Tensor> inputs{normal_tensor("x", {sizes.batch, sizes.length, sizes.width()}),
                               normal_tensor("q", head_shape), normal_tensor("k", head_shape),
                               normal_tensor("v", head_shape)};
    const auto start = make_encoding(one.choice, sizes, [&](std::string_view name, const Shape& shape, const Fill&) {
      return inputs.emplace_back(normal_tensor(name, shape, 0.7));
    });
    if (start->traits.straight_through) continue;
    start->project();
    const auto scored = testing::encoded_attention(*start, {inputs[0], inputs[1], inputs[2], inputs[3], 0.5});
    EXPECT_GT(testing::distance_to_kinks(scored.operands, scored.score), 1e-4) << "too near to move by 1e-6";
    const auto output = [&](const std::vector<Tensor>& given) {
      std::size_t next = 4;
      const auto encoding =
          make_encoding(one.choice, sizes, [&](std::string_view, const Shape&, const Fill&) { return given[next++]; });
      const Tensor heads = testing::attention_output(*encoding, given[0], given[1], given[2], given[3]);
      return merge_heads(heads) + encoding->embed(given[0], {});
    };
    const GradcheckResult result = gradcheck(output, inputs, {.full_limit = full_limit, .directions = 1});
    EXPECT_EQ(result.full, full_limit > 0);
    EXPECT_TRUE(result.ok) << result.text;
  }
}

// The smallest distance of a position in the model from an integer, where interpolation has a kink; infinite if it has
// no positions.
double distance_to_integers(Transformer& model, const Tensor& tokens) {
  const NoGrad only_values;
  std::vector<AttentionTrace> trace;
  model.forward(tokens, {.trace = &trace});
  double nearest = std::numeric_limits<double>::infinity();
  for (const AttentionTrace& layer : trace) {
    if (!layer.positions.defined()) continue;
    for (const double position : testing::seen_positions(layer.positions)) {
      // Counting encodings have whole positions, without interpolation; heads without positions have zeros.
      if (position != std::round(position)) nearest = std::min(nearest, std::abs(position - std::round(position)));
    }
  }
  return nearest;
}

// Tokens whose positions keep this distance from integers. They are found on the CPU; the numbers of other devices
// equal its numbers up to rounding.
std::uint64_t draw_apart_from_integers(const EncodingCase& one, std::int64_t length, double apart) {
  constexpr std::uint64_t most_draws = 10;
  const Device device = default_device();
  set_default_device({});
  const auto model = make_model(one, length);
  std::uint64_t draw = 0;
  while (draw < most_draws && distance_to_integers(*model, some_tokens(length, 1, draw)) < apart) ++draw;
  set_default_device(device);
  EXPECT_LT(draw, most_draws) << "none of them keeps all positions away from integers";
  return draw;
}

// The loss of a whole model along a random direction in the space of all parameters. It changes enough along this
// direction for a meaningful comparison. The step is small, because thousands of positions must not pass an integer,
// where interpolation has a kink.
void expect_directional_derivative(const EncodingCase& one, Transformer& model, std::int64_t length) {
  constexpr double eps = 1e-9;
  const Tensor tokens = some_tokens(length, 1, draw_apart_from_integers(one, length, 100 * eps));
  backward(next_token_loss(model, tokens));
  constexpr double enough = 1e-3;
  constexpr std::size_t most_directions = 3;
  double by_backward = 0;
  std::vector<Tensor> directions;
  NamedTensors parameters = model.parameters();
  for (std::size_t draw = 0; draw < most_directions && !(std::abs(by_backward) > enough); ++draw) {
    by_backward = 0;
    directions.clear();
    for (const auto& [path, parameter] : parameters) {
      directions.push_back(normal_tensor(formatted("along {}{}", path, std::string(draw, ' ')), parameter.shape()));
      const Tensor d_parameter = gradient(parameter);
      if (d_parameter.defined()) by_backward += sum(d_parameter * directions.back()).item();
    }
  }
  const NoGrad only_values;
  std::vector<double> losses;
  for (const double move : {eps, -2 * eps}) {
    for (std::size_t n = 0; n < parameters.size(); ++n) {
      parameters[n].second.copy_from(add(parameters[n].second.detach(), directions[n] * move));
    }
    losses.push_back(next_token_loss(model, tokens).item());
  }
  const double by_difference = (losses[0] - losses[1]) / (2 * eps);
  EXPECT_NEAR(by_backward, by_difference, 1e-5 + 1e-5 * std::abs(by_difference));
  EXPECT_GT(std::abs(by_backward), enough);
}

TEST_P(Encodings, HaveTheDirectionalDerivativeOfAWholeModel) {
  const std::int64_t length = testing::takes_a_share() ? 35 : 64;
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one, length);
    if (takes(one, *model, length, length) && !model->straight_through()) {
      expect_directional_derivative(one, *model, length);
    }
  }
}

TEST_P(Encodings, HaveItTogether) {
  const std::int64_t length = default_device() == Device{} ? 64 : 12;
  for (const EncodingCase& one : some_together()) {
    SCOPED_TRACE(one.label);
    const auto model = make_together(one, length);
    if (model != nullptr && !model->straight_through()) expect_directional_derivative(one, *model, length);
  }
}

// Every parameter matters: none has a gradient of zero once all are off their start.
TEST_P(Encodings, GiveEveryParameterAGradient) {
  const Tensor tokens = some_tokens(12, 2);
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one, 12);
    if (!takes(one, *model, 12, 12)) continue;
    backward(next_token_loss(*model, tokens));
    double largest = 0;
    for (const auto& [path, parameter] : model->parameters()) {
      if (!gradient(parameter).defined()) continue;
      largest = std::max(largest, sum(abs(gradient(parameter))).item());
    }
    for (const auto& [path, parameter] : model->parameters()) {
      if (testing::zero_by_symmetry(one, path, 12)) continue;
      ASSERT_TRUE(gradient(parameter).defined()) << path;
      EXPECT_GT(sum(abs(gradient(parameter))).item(), 1e-10 * largest) << path << ": no more than rounding";
    }
  }
}

TEST_P(Encodings, AreCausal) {
  constexpr std::int64_t length = 9;
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one, length);
    if (!takes(one, *model, length, length)) continue;
    testing::expect_causal_at(*model, some_tokens(length), {0, 1, 2, 3, 4, 5, 6, 7, 8});
  }
}

// Longer than announced: either an error names the limit, or the outputs of the first tokens do not change.
constexpr std::int64_t trained = 8, longer = 13;

void expect_to_go_on(const EncodingCase& one, Transformer& model) {
  if (!takes(one, model, longer, trained)) return;
  const Tensor tokens = some_tokens(longer);
  const std::vector<double> alone = model.forward(slice(tokens, 1, 0, trained)).to_vector<double>();
  const std::vector<double> within = model.forward(tokens).to_vector<double>();
  // Except for rows that the encoding names as changing, which do change. With a named limit any row may change.
  const bool limited = model.same_up_to(trained) < longer;
  const std::size_t end = alone.size() - static_cast<std::size_t>(model.rows_by_end() * vocabulary);
  for (std::size_t n = 0; n < end && !limited; ++n) ASSERT_NEAR(alone[n], within[n], 1e-12);
  for (std::size_t n = end; n < alone.size(); ++n) ASSERT_GT(std::abs(alone[n] - within[n]), 1e-12);
  for (const double value : within) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(Encodings, GoOnBeyondTheTrainedLengthOrNameTheLimit) {
  const NoGrad only_values;
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one, trained);
    if (takes(one, *model, trained, trained)) expect_to_go_on(one, *model);
  }
  for (const EncodingCase& one : some_together()) {
    SCOPED_TRACE(one.label);
    if (const auto model = make_together(one, trained)) expect_to_go_on(one, *model);
  }
}

// An encoding has no state except its parameters.
void expect_the_same_after_loading(const EncodingCase& one, Transformer& saved, std::int64_t length) {
  const Tensor tokens = some_tokens(length, 2);
  const auto loaded = make_model(one, length, DType::f32);
  for (auto& [path, parameter] : loaded->parameters()) parameter.copy_from(multiply(parameter.detach(), 0.5));
  loaded->project_parameters();
  EXPECT_NE(saved.forward(tokens).to_vector<float>(), loaded->forward(tokens).to_vector<float>());
  loaded->load(saved.parameters());
  EXPECT_EQ(saved.forward(tokens).to_vector<float>(), loaded->forward(tokens).to_vector<float>());
}

TEST_P(Encodings, AreTheSameWithLoadedParameters) {
  constexpr std::int64_t length = 6;
  const NoGrad only_values;
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto saved = make_model(one, length, DType::f32);
    if (takes(one, *saved, length, length)) expect_the_same_after_loading(one, *saved, length);
  }
  for (const EncodingCase& one : testing::every(5, some_together())) {
    SCOPED_TRACE(one.label);
    if (const auto saved = make_together(one, length, DType::f32)) expect_the_same_after_loading(one, *saved, length);
  }
}

// f32 differs from f64 only by rounding.
TEST_P(Encodings, AgreeInSingleAndDoublePrecision) {
  constexpr std::int64_t length = 20;
  const NoGrad only_values;
  const Tensor tokens = some_tokens(length);
  for (const EncodingCase& one : cases_here()) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one, length);
    if (!takes(one, *model, length, length)) continue;
    const auto single = make_model(one, length, DType::f32);
    NamedTensors values = model->parameters();
    for (auto& [path, value] : values) value = value.to(DType::f32);
    single->load(values);
    const std::vector<double> expected = model->forward(tokens).to_vector<double>();
    const std::vector<float> found = single->forward(tokens).to_vector<float>();
    for (std::size_t n = 0; n < expected.size(); ++n) ASSERT_NEAR(static_cast<double>(found[n]), expected[n], 2e-5);
  }
}

}  // namespace tally::encoding_test
