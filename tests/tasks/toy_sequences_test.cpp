// Sequences of the toy tasks: the probabilities of their parts, and the independence of splits, seeds and neighbours.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "tests/tasks/make_task.hpp"

namespace tally::toy_sequences_test {

using testing::expect_share;
using testing::make_task;
using testing::Settings;
using Tokens = std::vector<std::int32_t>;

// Instructions of flip-flop between the first and the last, and the bits of writes and ignores.
TEST(ToyTasks, InstructionsHaveTheProbabilitiesOfTheirSplit) {
  enum : std::int32_t { write, read, ignore, zero, one };
  const auto task = make_task("flip-flop");
  for (const auto& [split, p] :
       {std::pair{"train", 0.8}, {"in-distribution", 0.8}, {"ood-sparse", 0.98}, {"ood-dense", 0.1}}) {
    std::map<std::int32_t, double> seen;
    for (std::int64_t index = 0; index < 500; ++index) {
      const Tokens tokens = task->example(split, index).tokens;
      for (std::size_t t = 2; t + 2 < tokens.size(); t += 2) {
        ++seen[tokens[t]];
        if (tokens[t] != read) ++seen[tokens[t + 1]];
      }
    }
    const double positions = seen[write] + seen[read] + seen[ignore];
    expect_share(seen[ignore], positions, p, split);
    expect_share(seen[write], positions, (1 - p) / 2, split);
    expect_share(seen[one], seen[zero] + seen[one], 0.5, split);
  }
}

TEST(ToyTasks, BlanksOfSelectiveCopyAreAUniformSubset) {
  const auto task = make_task("selective-copy", {{"non-blanks", "2"}, {"blanks", "3"}});
  constexpr int sequences = 5000;
  std::map<std::string, double> subsets;
  for (std::int64_t index = 0; index < sequences; ++index) {
    const Tokens tokens = task->example("train", index).tokens;
    std::string positions;
    for (std::size_t t = 0; t < 5; ++t) positions += tokens[t] == 15 ? '_' : 'x';
    ++subsets[positions];
  }
  ASSERT_EQ(subsets.size(), 10u);  // 5 over 2
  for (const auto& [positions, count] : subsets) expect_share(count, sequences, 0.1, positions);
}

// Each length of a task with length splits, and of group-word's mixture, is equally likely.
TEST(ToyTasks, LengthsCoverTheirRanges) {
  const auto expect_uniform = [](const Task& task, const char* split, std::int64_t least, std::int64_t most) {
    constexpr int sequences = 3000;
    std::map<std::int64_t, double> seen;
    for (std::int64_t index = 0; index < sequences; ++index) ++seen[std::ssize(task.example(split, index).tokens) - 1];
    EXPECT_EQ(std::ssize(seen), most - least + 1) << split;
    for (std::int64_t n = least; n <= most; ++n) {
      expect_share(seen[n], sequences, 1.0 / static_cast<double>(most - least + 1), split);
    }
  };
  for (const char* name : {"parity", "even-pairs", "cycle-navigation"}) {
    const auto task = make_task(name, {{"max-length", "4"}, {"eval-count", "3000"}, {"far-count", "3000"}});
    expect_uniform(*task, "train", 1, 4);
    expect_uniform(*task, "in-distribution", 1, 4);
    expect_uniform(*task, "ood-long", 5, 10);
    expect_uniform(*task, "ood-far", 11, 50);
    EXPECT_EQ(make_task(name, {{"far-count", "0"}})->splits().size(), 3u);
  }
  expect_uniform(*make_task("group-word", {{"group", "s3"}, {"length", "5"}, {"mix", "true"}}), "train", 2, 5);
}

// Programs with few increments recur by chance; programs with twenty or more never do.
TEST(ToyTasks, SplitsShareNoPrograms) {
  const auto task = make_task("counting");
  constexpr std::int32_t increment = 13;
  std::set<Tokens> programs;
  for (const Split& split : task->splits()) {
    for (std::int64_t index = 0; index < 1000; ++index) {
      const Tokens tokens = task->example(split.name, index).tokens;
      if (std::ranges::count(tokens, increment) < 20) continue;
      EXPECT_TRUE(programs.insert(tokens).second) << split.name << " " << index;
    }
  }
  EXPECT_GT(programs.size(), 1000u);
}

// First bits of sequences of two independent streams agree as often as two coins do.
TEST(ToyTasks, SplitsSeedsAndNeighboursAreIndependent) {
  const Settings settings{{"length", "4"}};
  const auto task = make_task("flip-flop", settings, 1, 1), next_seed = make_task("flip-flop", settings, 2, 2);
  const auto far_seed = make_task("flip-flop", settings, std::uint64_t{1} << 32 | 1, 1);
  struct Pair {
    const char* split;
    const Task& other;
    const char* other_split;
    std::int64_t shift = 0;
  };
  for (const Pair& pair : {Pair{"train", *task, "in-distribution"},
                           {"in-distribution", *task, "ood-sparse"},
                           {"ood-sparse", *task, "ood-dense"},
                           {"train", *next_seed, "train"},
                           {"in-distribution", *next_seed, "in-distribution"},
                           {"train", *far_seed, "train"},
                           {"train", *task, "train", 1}}) {
    constexpr std::int64_t sequences = 999;
    double agreeing = 0;
    for (std::int64_t index = 0; index < sequences; ++index) {
      const std::int32_t bit = task->example(pair.split, index).tokens[1];
      agreeing += bit == pair.other.example(pair.other_split, index + pair.shift).tokens[1];
    }
    expect_share(agreeing, sequences, 0.5, formatted("{} and {}", pair.split, pair.other_split));
  }
}

}  // namespace tally::toy_sequences_test
