// The recurrent model: names, the fused recurrence against one of ordinary operations, text generated token by token.
#include "nn/layers/lstm.hpp"

#include <gtest/gtest.h>

#include <map>

#include "core/cpu/parallel.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::lstm_test {

using testing::normal_tensor;

constexpr std::int64_t vocabulary = 7;

ModelOptions small_lstm(std::int64_t layers = 2) {
  ModelOptions options;
  options.kind = "lstm";
  options.layers = layers;
  options.width = 6;
  options.init = "fan-in";
  return options;
}

std::unique_ptr<SequenceModel> make(const ModelOptions& options, DType dtype = DType::f64) {
  auto model = make_model(options, EncodingChoice::parse("none"), vocabulary, 9, 1, dtype, default_device());
  for (auto& [path, parameter] : model->parameters()) {  // a bias of zeros would hide its addend
    parameter.copy_from(add(parameter.detach().to(DType::f64), normal_tensor(path, parameter.shape(), 0.3)));
  }
  return model;
}

Tensor some_tokens(std::int64_t batch, std::int64_t length) {
  Rng rng({3, stream_of("tokens"), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < batch * length; ++n) ids.push_back(static_cast<std::int32_t>(rng.below(vocabulary)));
  return Tensor::from(ids, {batch, length}, default_device());
}

Tensor loss_of(const Tensor& logits, const Tensor& tokens) {
  return cross_entropy(logits, tokens, Tensor::full(tokens.shape(), 1, DType::boolean, default_device()));
}

// The formulas, every intermediate written out.
Tensor composed(const std::map<std::string, Tensor>& p, const Tensor& tokens, std::int64_t layers, std::int64_t width) {
  Tensor x = embedding(p.at("embedding.weight"), tokens);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = formatted("layers.{}.", layer);
    Tensor hidden = Tensor::zeros({x.size(0), width}, x.dtype(), x.device()), cell = hidden;
    std::vector<Tensor> steps;
    for (std::int64_t t = 0; t < x.size(1); ++t) {
      const Tensor sums = linear(select(x, 1, t), p.at(name + "input.weight"), p.at(name + "input.bias")) +
                          linear(hidden, p.at(name + "recurrent.weight"));
      const auto gate = [&](std::int64_t n) { return slice(sums, 1, n * width, (n + 1) * width); };
      cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * tanh(gate(2));
      hidden = sigmoid(gate(3)) * tanh(cell);
      steps.push_back(unsqueeze(hidden, 1));
    }
    x = concat(steps, 1);
  }
  return linear(x, p.at("head.weight"));
}

void expect_near(const Tensor& found, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape())) << what;
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], 1e-11) << what << " " << n;
}

using testing::error_of;

class Recurrence : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Recurrence);

TEST_P(Recurrence, EqualsOneOfOrdinaryOperations) {
  const auto model = make(small_lstm());
  const Tensor tokens = some_tokens(5, 9);
  std::map<std::string, Tensor> copies;
  for (const auto& [path, parameter] : model->parameters()) {
    set_requires_grad(copies[path] = parameter.clone());
  }
  const Tensor logits = model->forward(tokens), expected = composed(copies, tokens, 2, 6);
  expect_near(logits, expected, "logits");
  backward(loss_of(logits, tokens));
  backward(loss_of(expected, tokens));
  for (const auto& [path, parameter] : model->parameters()) {
    expect_near(gradient(parameter), gradient(copies.at(path)), path);
  }
}

TEST_P(Recurrence, GivesTheLogitsOfTheWholeSequenceInSteps) {
  const auto model = make(small_lstm());
  const Tensor tokens = some_tokens(3, 9);
  const NoGrad only_values;
  const Tensor whole = model->forward(tokens);
  GenerationState state, branch;
  std::vector<Tensor> rows;
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 5}, {5, 5}, {5, 9}}) {
    if (begin == 5 && end == 9) branch = state;
    rows.push_back(model->step(slice(tokens, 1, begin, end), state));
    EXPECT_EQ(state.length, end);
  }
  expect_near(concat(rows, 1), whole, "in steps");
  expect_near(model->step(slice(tokens, 1, 5, 9), branch), slice(whole, 1, 5, 9), "a copy goes its own way");
}

TEST(Lstm, NamesParametersAsCheckpointsDo) {
  ModelOptions options = small_lstm(1);
  const auto names = [&] {
    std::vector<std::string> lines;
    for (const auto& [path, parameter] : make(options)->parameters()) {
      lines.push_back(formatted("{} {}", path, parameter.shape()));
    }
    return lines;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"embedding.weight [7, 6]", "layers.0.input.weight [24, 6]",
                                               "layers.0.input.bias [24]", "layers.0.recurrent.weight [24, 6]",
                                               "head.weight [7, 6]"}));
  EXPECT_EQ(make(options)->matrix_parameter_count(), 2 * 24 * 6 + 7 * 6);
  options.tied = true, options.bias = false;
  EXPECT_EQ(names(), (std::vector<std::string>{"embedding.weight [7, 6]", "layers.0.input.weight [24, 6]",
                                               "layers.0.recurrent.weight [24, 6]"}));
}

TEST(Lstm, DropsWhileTrainingAlone) {
  ModelOptions options = small_lstm();
  const auto plain = make(options);
  options.dropout = 0.4;
  const auto model = make(options);
  const Tensor tokens = some_tokens(2, 9);
  const NoGrad only_values;
  const auto numbers = [&](SequenceModel& of, bool training, std::uint32_t step) {
    return of.forward(tokens, {.training = training, .step = {.seed = 1, .number = step}}).to_vector<double>();
  };
  EXPECT_EQ(numbers(*model, false, 1), numbers(*plain, true, 1));
  EXPECT_NE(numbers(*model, true, 1), numbers(*plain, true, 1));
  EXPECT_NE(numbers(*model, true, 1), numbers(*model, true, 2));
  EXPECT_EQ(numbers(*model, true, 2), numbers(*model, true, 2));
}

TEST(Lstm, RefusesWhatItHasNoUseFor) {
  EXPECT_EQ(error_of([] { check_model(small_lstm(), EncodingChoice::parse("cope+rope")); }),
            "[model] pe = cope+rope has no effect with kind = lstm, which takes tokens in their order and has no "
            "positions to encode; it goes with --pe none");
  ModelOptions options = small_lstm();
  options.width = 7;  // heads do not have to divide it
  EXPECT_EQ(error_of([&] { check_model(options, EncodingChoice::parse("none")); }), "");
  EXPECT_NE(error_of([] { make(small_lstm())->forward(Tensor::zeros({3}, DType::i32)); }), "");
  options.kind = "gru";
  EXPECT_NE(error_of([&] { options.validate(); }).find("gru"), std::string::npos);
}

}  // namespace tally::lstm_test
