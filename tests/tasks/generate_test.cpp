// Compares generated answers with one forward pass per symbol.
#include "tasks/evaluation/generate.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/error_of.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::generate_test {

// A small model of a task.
struct Small {
  Small(const std::string& name, const std::string& encoding)
      : config(testing::configured(name, encoding, "model.width=16 model.heads=2 model.init=fan-in")),
        task(config.make_task()),
        model(config.make_model(*task)) {}

  const RunConfig config;
  const std::unique_ptr<Task> task;
  const std::unique_ptr<SequenceModel> model;
};

// The model's answers by forward passes over each prefix, one sequence at a time.
std::vector<std::int32_t> asked_one_by_one(SequenceModel& model, std::vector<std::int32_t> tokens, std::size_t count) {
  const NoGrad no_grad;
  std::vector<std::int32_t> said;
  for (std::size_t n = 0; n < count; ++n) {
    const auto length = static_cast<std::int64_t>(tokens.size());
    const Tensor logits = model.forward(Tensor::from(tokens, {1, length}));
    said.push_back(static_cast<std::int32_t>(argmax(logits).to_vector<std::int64_t>().back()));
    tokens.push_back(said.back());
  }
  return said;
}

TEST(Generate, IsAskingForOneSymbolAfterTheOther) {
  const Small small("selective-copy", "cope+rope");
  const std::vector<std::int32_t> a{1, 15, 2, 3}, b{7, 7, 15, 15};
  const Generated both =
      generate(*small.model, Tensor::from(std::vector<std::int32_t>{1, 15, 2, 3, 7, 7, 15, 15}, {2, 4}), 6);
  ASSERT_EQ(to_text(both.symbols.shape()), "[2, 6]");
  std::vector<std::int32_t> expected = asked_one_by_one(*small.model, a, 6);
  const std::vector<std::int32_t> second = asked_one_by_one(*small.model, b, 6);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(both.symbols.to_vector<std::int32_t>(), expected);
  for (const double probability : both.probabilities.to_vector<double>()) {
    EXPECT_TRUE(probability > 1.0 / 16 && probability <= 1);  // the largest of 16
  }
  EXPECT_THROW(generate(*small.model, both.symbols, 0), Error);
}

TEST(Generate, ScoresWhatTheModelGoesOnWith) {
  const Small small("selective-copy", "cope");
  constexpr std::int64_t count = 7;
  std::int64_t wrong = 0, wrong_sequences = 0, scored = 0;
  for (std::int64_t index = 0; index < count; ++index) {
    const Example example = small.task->example("ood-dense", index);
    std::vector<std::int32_t> prompt, right;
    for (std::size_t t = 0; t < example.tokens.size(); ++t) {
      if (right.empty()) prompt.push_back(example.tokens[t]);
      if (example.score_mask[t] != 0) right.push_back(example.targets[t]);
    }
    const std::vector<std::int32_t> said = asked_one_by_one(*small.model, prompt, right.size());
    std::int64_t own = 0;
    for (std::size_t n = 0; n < right.size(); ++n) own += said[n] != right[n];
    wrong += own, wrong_sequences += own > 0, scored += static_cast<std::int64_t>(right.size());
  }
  for (const std::int64_t batch : {1, 3, 64}) {
    const Evaluation e = evaluate_generated(*small.model, *small.task, "ood-dense", count, batch);
    EXPECT_TRUE(e.generated);
    EXPECT_EQ(e.split, "ood-dense");
    EXPECT_EQ(e.scored, scored);
    EXPECT_EQ(e.wrong, wrong);
    EXPECT_EQ(e.sequences, count);
    EXPECT_EQ(e.wrong_sequences, wrong_sequences);
  }
  const JsonValue json = evaluation_json(3, evaluate_generated(*small.model, *small.task, "ood-dense", 1, 1));
  EXPECT_TRUE(json.contains("generated"));
  EXPECT_FALSE(json.contains("loss"));
}

// If the answer is a single token, no answer is fed back. Programs have many lengths.
TEST(Generate, OneSymbolIsTheTeachersAnswerToo) {
  const Small small("counting", "rope");
  const Evaluation fed = evaluate(*small.model, *small.task, "test", 20, 4),
                   own = evaluate_generated(*small.model, *small.task, "test", 20, 4);
  EXPECT_EQ(own.scored, 20);
  EXPECT_EQ(own.wrong, fed.wrong);
}

}  // namespace tally::generate_test
