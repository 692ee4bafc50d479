// Check numbers of the counting task: means over 20,000 programs of each setting, compared with the reference
// generator's means over 400,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/tasks/make_task.hpp"

namespace tally {
namespace counting_statistics_test {

struct CheckNumbers {
  int vars, pass_weight;
  double operations;      // mean
  double tokens;          // mean of the uncut sequence, question and answer included
  double over_512;        // share of sequences longer than 512 tokens
  double answer_10;       // fraction
  double answer_0;        // share
  double distance;        // mean number of tokens from `print` back to the latest set of the variable printed
  double majority_error;  // error of always answering the most frequent answer
};

class Sample {
 public:
  void add(double value) {
    sum_ += value;
    squares_ += value * value;
    ++count_;
  }
  double mean() const { return sum_ / count_; }
  double standard_error() const { return std::sqrt((squares_ / count_ - mean() * mean()) / count_); }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

class CountingStatistics : public ::testing::TestWithParam<CheckNumbers> {};

TEST_P(CountingStatistics, AgreeWithTheReferenceGenerator) {
  const CheckNumbers& expected = GetParam();
  constexpr std::int64_t programs = 20'000;
  const auto task = testing::make_task("counting", {{"vars", std::to_string(expected.vars)},
                                                    {"pass-weight", std::to_string(expected.pass_weight)},
                                                    {"train-count", std::to_string(programs)},
                                                    {"max-tokens", "4000"}});
  const std::int32_t equals = task->encode("=")[0], increment = task->encode("++;")[0], pass = task->encode("pass;")[0];

  Sample operations, tokens, distance;
  double over_512 = 0;
  std::vector<double> answers(11);
  for (std::int64_t index = 0; index < programs; ++index) {
    const Example example = task->example("train", index);
    const auto& fed = example.tokens;
    double count = 0;
    for (const std::int32_t token : fed) count += token == equals || token == increment || token == pass;
    operations.add(count);
    const std::size_t length = fed.size() + 1;
    tokens.add(static_cast<double>(length));
    over_512 += length > 512;
    ++answers[static_cast<std::size_t>(example.targets.back())];
    const std::size_t print = fed.size() - 2;
    std::size_t set = print - 1;
    while (fed[set] != fed.back() || fed[set + 1] != equals) --set;
    distance.add(static_cast<double>(print - set));
  }

  EXPECT_NEAR(operations.mean(), expected.operations, 4);
  EXPECT_NEAR(tokens.mean(), expected.tokens, 4 * tokens.standard_error());
  EXPECT_NEAR(distance.mean(), expected.distance, 4 * distance.standard_error());
  testing::expect_share(over_512, programs, expected.over_512, "over 512 tokens");
  testing::expect_share(answers[10], programs, expected.answer_10, "answer 10");
  testing::expect_share(answers[0], programs, expected.answer_0, "answer 0");
  const double majority = *std::max_element(answers.begin(), answers.end());
  testing::expect_share(programs - majority, programs, expected.majority_error, "error of the majority answer");
}

INSTANTIATE_TEST_SUITE_P(Programs, CountingStatistics,
                         ::testing::Values(CheckNumbers{1, 50, 278.6, 320.3, 0.141, 0.203, 0.142, 55.7, 0.797},
                                           CheckNumbers{1, 100, 294.2, 318.6, 0.088, 0.171, 0.155, 86.9, 0.829},
                                           CheckNumbers{1, 10, 261.5, 395.1, 0.345, 0.173, 0.141, 21.5, 0.827},
                                           CheckNumbers{3, 50, 278.7, 320.3, 0.141, 0.214, 0.139, 111.7, 0.786},
                                           CheckNumbers{5, 50, 278.9, 320.5, 0.142, 0.215, 0.140, 131.4, 0.785}),
                         [](const auto& test) {
                           return "Vars" + std::to_string(test.param.vars) + "Pass" +
                                  std::to_string(test.param.pass_weight);
                         });

}  // namespace counting_statistics_test
}  // namespace tally
