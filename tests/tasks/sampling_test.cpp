// Sampling of a token, compared with the explicit distribution over a grid of uniform numbers.
#include "tasks/evaluation/generate.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/tasks/make_task.hpp"

namespace tally::sampling_test {

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

}  // namespace tally::sampling_test
