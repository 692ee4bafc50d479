// The test of exercise 7.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "autograd/node.hpp"
#include "nn/transformer.hpp"

std::vector<std::int32_t> continued(tally::SequenceModel& model, std::vector<std::int32_t> prompt, int count);

namespace tally {
namespace {

// Counts the tokens that go through the model.
class Counting final : public SequenceModel {
 public:
  explicit Counting(SequenceModel& model) : model_(model) {}
  Tensor hidden(const Tensor& tokens, const ForwardContext& pass) override {
    rows += tokens.numel();
    return model_.hidden(tokens, pass);
  }
  Tensor step(const Tensor& tokens, GenerationState& state) override {
    rows += tokens.numel();
    return model_.step(tokens, state);
  }
  const Tensor& head() const override { return model_.head(); }

  std::int64_t rows = 0;

 private:
  SequenceModel& model_;
};

class Continued : public ::testing::Test {
 protected:
  static ModelOptions small() {
    ModelOptions options;
    options.layers = 2;
    options.width = 16;
    options.heads = 2;
    options.init = "fan-in";  // large enough logits to tell tokens apart
    return options;
  }

  // By a whole pass for each token.
  std::vector<std::int32_t> expected(std::vector<std::int32_t> text, int count) {
    const NoGrad values_only;
    for (int n = 0; n < count; ++n) {
      const Tensor logits = model_.forward(Tensor::from(text, {1, std::ssize(text)}));
      text.push_back(static_cast<std::int32_t>(argmax(select(logits, 1, logits.size(1) - 1)).item()));
    }
    return text;
  }

  Transformer model_{small(), EncodingChoice::parse("alibi"), 50, 64, 3, DType::f64};
};

TEST_F(Continued, ChoosesTheLargestLogit) {
  const std::vector<std::int32_t> prompt{4, 1, 49, 7, 7};
  EXPECT_EQ(continued(model_, prompt, 20), expected(prompt, 20));
}

TEST_F(Continued, SendsEachTokenThroughTheModelAtMostOnce) {
  Counting counting(model_);
  ASSERT_EQ(continued(counting, {4, 1, 2}, 10).size(), 13U);
  // The last token is never an input.
  EXPECT_LE(counting.rows, 13);
}

}  // namespace
}  // namespace tally
