// Compares generated answers with one forward pass per symbol, and samples with their distribution.
#include "tasks/evaluation/generate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
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
  const Tensor both =
      generate(*small.model, Tensor::from(std::vector<std::int32_t>{1, 15, 2, 3, 7, 7, 15, 15}, {2, 4}), 6);
  ASSERT_EQ(to_text(both.shape()), "[2, 6]");
  std::vector<std::int32_t> expected = asked_one_by_one(*small.model, a, 6);
  const std::vector<std::int32_t> second = asked_one_by_one(*small.model, b, 6);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(both.to_vector<std::int32_t>(), expected);
  EXPECT_THROW(generate(*small.model, both, 0), Error);
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

// Sampling is compared with the explicit distribution over a grid of uniform numbers.

constexpr int grid = 100'000;

// The fraction of the grid's uniform numbers that give each token.
std::vector<double> shares(const std::vector<double>& logits, const SamplingOptions& options) {
  std::vector<double> shares(logits.size(), 0);
  std::int32_t last = 0;
  for (int n = 0; n < grid; ++n) {
    const std::int32_t id = sample(logits, options, (n + 0.5) / grid).id;
    EXPECT_GE(id, last) << "ids rise with the uniform number";
    last = id;
    shares.at(static_cast<std::size_t>(id)) += 1.0 / grid;
  }
  return shares;
}

SamplingOptions options_of(double temperature, std::int64_t top_k, double top_p) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  return options;
}

void expect_shares(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t id = 0; id < found.size(); ++id) EXPECT_NEAR(found[id], expected[id], 2.0 / grid) << id;
}

// Probabilities 1/10, 4/10, 2/10, 3/10.
const std::vector<double> logits{std::log(1.0), std::log(4.0), std::log(2.0), std::log(3.0)};

TEST(Sampling, FollowsTheProbabilities) {
  expect_shares(shares(logits, options_of(1, 0, 1)), {0.1, 0.4, 0.2, 0.3});
  // Temperature 1/2 squares them: 1, 16, 4, 9 of 30.
  expect_shares(shares(logits, options_of(0.5, 0, 1)), {1.0 / 30, 16.0 / 30, 4.0 / 30, 9.0 / 30});
  expect_shares(shares(logits, options_of(0, 0, 1)), {0, 1, 0, 0});
}

TEST(Sampling, KeepsTheLikeliest) {
  expect_shares(shares(logits, options_of(1, 2, 1)), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(logits, options_of(1, 9, 1)), {0.1, 0.4, 0.2, 0.3});
  // 0.4 is less than 0.41, but 0.4 and 0.3 together reach it; the first token reaches 0.4.
  expect_shares(shares(logits, options_of(1, 0, 0.41)), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(logits, options_of(1, 0, 0.4)), {0, 1, 0, 0});
  expect_shares(shares(logits, options_of(1, 0, 0)), {0, 1, 0, 0});
  // With 3 kept: 4/9, 3/9, 2/9; the first two reach 0.77.
  expect_shares(shares(logits, options_of(1, 3, 0.77)), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(logits, options_of(1, 3, 0.79)), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  // Ties prefer smaller ids.
  expect_shares(shares({0, 0, 0, 0}, options_of(1, 2, 1)), {0.5, 0.5, 0, 0});
  expect_shares(shares({0, 0, 0, 0}, options_of(1, 0, 0.6)), {1.0 / 3, 1.0 / 3, 1.0 / 3, 0});
}

TEST(Sampling, TellsTheModelsOwnProbability) {
  for (const double temperature : {0.0, 0.5, 2.0}) {
    const Sampled chosen = sample(logits, options_of(temperature, 1, 1), 0.5);
    EXPECT_NEAR(chosen.log_probability, std::log(0.4), 1e-12);
  }
  // Nothing overflows.
  EXPECT_NEAR(sample(std::vector<double>{-1e5, 1e5}, options_of(1, 0, 1), 0.5).log_probability, 0, 1e-12);
}

TEST(Sampling, RefusesWhatIsNoNumber) {
  EXPECT_EQ(testing::error_of([] { sample(std::vector<double>{}, {}, 0); }), "[sample] there are no logits");
  const std::vector<double> broken{0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(testing::error_of([&] { sample(broken, {}, 0); }), "[sample] the logit of token 1 is nan");
}

// Numbers differ from token to token and sample to sample. One uses the upper 53 of 64 random bits: 32 of the first
// word and 21 of the second.
TEST(Sampling, NoTwoNumbersShareAWord) {
  std::set<double> all;
  for (std::int64_t token = 0; token < 20; ++token) {
    std::set<std::uint64_t> seen;  // the upper 21 bits of each word
    for (std::int64_t n = 0; n < 5; ++n) {
      const auto bits = static_cast<std::uint64_t>(sampling_uniform(1, token, n) * 0x1p53);
      seen.insert(bits >> 32);
      seen.insert(bits & ((1U << 21) - 1));
      all.insert({sampling_uniform(1, token, n), sampling_uniform(2, token, n)});
    }
    EXPECT_EQ(seen.size(), 10u) << "token " << token;
  }
  EXPECT_EQ(all.size(), 200u);
  EXPECT_TRUE(*all.begin() >= 0 && *all.rbegin() < 1);
}

}  // namespace tally::generate_test
