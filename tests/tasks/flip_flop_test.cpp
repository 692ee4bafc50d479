// Flip-flop: the first sequences as text, structure, masks, check numbers, errors.
#include <gtest/gtest.h>

#include <map>

#include "tests/tasks/make_task.hpp"

namespace tally::flip_flop_test {

using testing::error_of;
using testing::expect_share;
using testing::make_task;
using testing::Settings;
using testing::text_of;

enum : std::int32_t { write, read, ignore, zero, one };

TEST(FlipFlop, FirstSequencesAreFixed) {
  const auto task = make_task("flip-flop", {{"length", "32"}});
  EXPECT_EQ(text_of(*task, "train", 0), "w1r1i0i1i0w0i1w1i1i1i0i0i1i0i0r1");
  EXPECT_EQ(text_of(*task, "in-distribution", 0), "w1i0r1i0i0i0i0i1r1i1i1i0i0i1i0r1");
  EXPECT_EQ(text_of(*task, "ood-sparse", 0), "w1i1i1i1i0i0i0i0i0i1i0i0i1i1i0r1");
  EXPECT_EQ(text_of(*task, "ood-dense", 0), "w1r1r1r1w0w1w0r0r0w0r0w0r0w0r0r0");
}

TEST(FlipFlop, SplitsAreThoseOfThePaper) {
  const auto task = make_task("flip-flop");
  const auto& splits = task->splits();
  ASSERT_EQ(splits.size(), 4u);
  const std::vector<std::string> names{"train", "in-distribution", "ood-sparse", "ood-dense"};
  const std::vector<std::int64_t> counts{0, 1000, 100'000, 3000};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(splits[i].name, names[i]);
    EXPECT_EQ(splits[i].count, counts[i]);
    EXPECT_EQ(splits[i].length, 512);
  }
  EXPECT_EQ(task->max_length(), 512);
}

TEST(FlipFlop, EverySequenceObeysTheRules) {
  for (const char* length : {"4", "6", "32", "512"}) {
    const auto task = make_task("flip-flop", {{"length", length}});
    testing::expect_well_formed(*task, 50);
    for (const Split& split : task->splits()) {
      for (std::int64_t index = 0; index < 50; ++index) {
        const Example example = task->example(split.name, index);
        const auto& tokens = example.tokens;
        ASSERT_EQ(std::to_string(tokens.size()), length);
        ASSERT_EQ(tokens.front(), write);
        ASSERT_EQ(tokens[tokens.size() - 2], read);
        std::int32_t memory = -1;
        for (std::size_t t = 0; t < tokens.size(); t += 2) {
          ASSERT_LE(tokens[t], ignore);
          ASSERT_GE(tokens[t + 1], zero);
          if (tokens[t] == write) memory = tokens[t + 1];
          if (tokens[t] == read) {
            ASSERT_EQ(tokens[t + 1], memory);
          }
        }
      }
    }
  }
}

TEST(FlipFlop, PositionPredictsTheNextSymbol) {
  for (const char* loss : {"reads", "all"}) {
    const auto task = make_task("flip-flop", {{"length", "64"}, {"loss", loss}});
    const Example example = task->example("train", 3);
    for (std::size_t t = 0; t + 1 < 64; ++t) {
      const bool is_read = example.tokens[t] == read;
      EXPECT_EQ(example.targets[t], example.tokens[t + 1]);
      EXPECT_EQ(example.score_mask[t], is_read);
      EXPECT_EQ(example.loss_mask[t], is_read || std::string(loss) == "all");
    }
    EXPECT_EQ(example.targets[63], 0);
    EXPECT_EQ(example.loss_mask[63], 0);
    EXPECT_EQ(example.score_mask[63], 0);
  }
}

// First bits of sequences of two independent streams agree as often as two coins do.
void expect_independent(const Task& a, const std::string& split_a, const Task& b, const std::string& split_b,
                        std::int64_t shift) {
  constexpr std::int64_t sequences = 999;
  double agreeing = 0;
  for (std::int64_t index = 0; index < sequences; ++index) {
    agreeing += a.example(split_a, index).tokens[1] == b.example(split_b, index + shift).tokens[1];
  }
  expect_share(agreeing, sequences, 0.5, split_a + " and " + split_b);
}

TEST(FlipFlop, SplitsSeedsAndNeighboursAreIndependent) {
  const Settings settings{{"length", "4"}};
  const auto task = make_task("flip-flop", settings, 1, 1);
  const auto next_seed = make_task("flip-flop", settings, 2, 2);
  const auto far_seed = make_task("flip-flop", settings, std::uint64_t{1} << 32 | 1, 1);
  expect_independent(*task, "train", *task, "in-distribution", 0);
  expect_independent(*task, "in-distribution", *task, "ood-sparse", 0);
  expect_independent(*task, "ood-sparse", *task, "ood-dense", 0);
  expect_independent(*task, "train", *next_seed, "train", 0);
  expect_independent(*task, "in-distribution", *next_seed, "in-distribution", 0);
  expect_independent(*task, "train", *far_seed, "train", 0);
  expect_independent(*task, "train", *task, "train", 1);
}

// Instructions of the open positions (neither first nor last) and how often bits are 1.
struct Counts {
  std::map<std::int32_t, double> instructions;
  double positions = 0, ignored_pairs = 0, neighbours = 0, free_bits = 0, ones = 0;
};

Counts count(const Task& task, const std::string& split, std::int64_t sequences) {
  Counts counts;
  for (std::int64_t index = 0; index < sequences; ++index) {
    const Example example = task.example(split, index);
    const auto& tokens = example.tokens;
    for (std::size_t t = 0; t < tokens.size(); t += 2) {
      if (tokens[t] != read) {
        ++counts.free_bits;
        counts.ones += tokens[t + 1] == one;
      }
      if (t == 0 || t + 2 == tokens.size()) continue;
      ++counts.positions;
      ++counts.instructions[tokens[t]];
      if (t + 4 == tokens.size()) continue;
      ++counts.neighbours;
      counts.ignored_pairs += tokens[t] == ignore && tokens[t + 2] == ignore;
    }
  }
  return counts;
}

TEST(FlipFlop, ProbabilitiesAreThoseOfTheSplit) {
  const auto task = make_task("flip-flop");
  const std::map<std::string, double> p_ignore{
      {"train", 0.8}, {"in-distribution", 0.8}, {"ood-sparse", 0.98}, {"ood-dense", 0.1}};
  for (const auto& [split, p] : p_ignore) {
    Counts counts = count(*task, split, 1000);
    expect_share(counts.instructions[ignore], counts.positions, p, split + ": i");
    expect_share(counts.instructions[write], counts.positions, (1 - p) / 2, split + ": w");
    expect_share(counts.instructions[read], counts.positions, (1 - p) / 2, split + ": r");
    expect_share(counts.ones, counts.free_bits, 0.5, split + ": bits");
    // Overlapping pairs: the variance of their mean is p²(1-p²) + 2p³(1-p) over their number, at most.
    const double deviation = std::sqrt((p * p * (1 - p * p) + 2 * p * p * p * (1 - p)) / counts.neighbours);
    EXPECT_NEAR(counts.ignored_pairs / counts.neighbours, p * p, 4 * deviation) << split;
  }
}

TEST(FlipFlop, EncodesUnfinishedSequences) {
  const auto task = make_task("flip-flop");
  EXPECT_EQ(task->encode("w0i1r"), (std::vector<std::int32_t>{write, zero, ignore, one, read}));
  EXPECT_TRUE(task->encode("").empty());
  EXPECT_EQ(error_of([&] { task->encode("w0i2r0"); }), "[encode] symbol 4 is '2', which is none of w r i 0 1");
  EXPECT_EQ(error_of([&] { task->encode("w\x1b"); }), "[encode] symbol 2 is '\\x1b', which is none of w r i 0 1");
}

}  // namespace tally::flip_flop_test
