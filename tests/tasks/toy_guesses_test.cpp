// How often simple strategies answer right in the toy tasks. These shares follow from a task's distribution, or were
// measured with another generator of it. The heads of the tasks' files state most of them.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/tasks/make_task.hpp"

namespace tally::toy_guesses_test {

using testing::expect_share;
using testing::make_task;
using testing::Settings;
using Tokens = std::vector<std::int32_t>;

// The guess at position t of a sequence, from its tokens up to there, and for sums and programs from all of them.
using Guess = std::int32_t (*)(const Example& example, std::size_t t);

template <std::int32_t token>
std::int32_t always(const Example&, std::size_t) {
  return token;
}
std::int32_t last_symbol(const Example& example, std::size_t t) { return example.tokens[t - 1]; }
std::int32_t same_symbol(const Example& example, std::size_t t) { return example.tokens[t]; }

// The column of a sum in base 10 with the least significant digit first; 10 is "+", 11 is "=" and 12 is the end.
std::int32_t column_without_carry(const Example& example, std::size_t t) {
  const Tokens& tokens = example.tokens;
  const auto plus = static_cast<std::size_t>(std::ranges::find(tokens, 10) - tokens.begin());
  const auto equals = static_cast<std::size_t>(std::ranges::find(tokens, 11) - tokens.begin());
  const std::size_t column = t - equals, a = plus, b = equals - plus - 1;
  if (column >= std::max(a, b)) return column == std::max(a, b) ? 12 : -1;
  return ((column < a ? tokens[column] : 0) + (column < b ? tokens[plus + 1 + column] : 0)) % 10;
}

// Occurrences of the name in question in `count` sentences, from the last but `skipped` backwards; 20 is the answer 0.
template <std::size_t skipped, std::size_t count>
std::int32_t names_in_sentences(const Example& example, std::size_t t) {
  std::int32_t names = 0;
  std::size_t stops = 0;
  for (std::size_t at = t - 1; at-- > 0;) {
    stops += example.tokens[at] == 18;
    if (stops > skipped + count) break;
    names += stops > skipped && example.tokens[at] == example.tokens[t];
  }
  return 20 + names;
}

std::int32_t last_move(const Example& example, std::size_t t) { return (last_symbol(example, t) - 6 + 5) % 5; }

std::int32_t last_product(const Example& example, std::size_t t) {
  std::int32_t product = example.tokens[t - 1];
  for (std::size_t at = t - 1; at > 0 && example.tokens[at - 1] == 7; at -= 2) {
    product = product * example.tokens[at - 2] % 5;
  }
  return product;
}

std::int32_t previous_output(const Example& example, std::size_t t) {
  return t > 0 && example.score_mask[t - 1] != 0 ? example.tokens[t] : 0;
}

// Without a neighbour, a bit that is right in half of all sequences.
std::int32_t left_neighbour(const Example& example, std::size_t) {
  const auto blank = std::ranges::find(example.tokens, 2);
  return blank == example.tokens.begin() ? example.tokens.back() % 2 : *(blank - 1);
}

// The first or the latest value of the key at t.
template <bool latest>
std::int32_t value_before(const Example& example, std::size_t t) {
  std::int32_t value = -1;
  for (std::size_t at = 0; at < t; at += 2) {
    if (example.tokens[at] == example.tokens[t] && (latest || value < 0)) value = example.tokens[at + 1];
  }
  return value;
}

std::int32_t last_statement(const Example& example, std::size_t t) {
  const auto close = std::find(example.tokens.rbegin(), example.tokens.rend(), ']');
  return *(close + static_cast<std::ptrdiff_t>(example.tokens.size() - 1 - t));
}

struct Row {
  const char* task;
  Settings settings;
  const char* split;
  Guess guess;
  double right;
  double tolerance = 0;  // of `right`, if it was measured
};

const Settings twenty{{"max-length", "20"}}, little{{"order", "little"}},
    brackets{{"max-length", "20"}, {"form", "brackets"}};

TEST(ToyTasks, SimpleStrategiesAreRightAsOftenAsStated) {
  for (const Row& row : std::vector<Row>{
           {"addition", little, "train", column_without_carry, 0.751, 0.012},
           {"addition", little, "ood-long", column_without_carry, 0.615, 0.012},
           {"counting", {}, "train", always<10>, 0.203, 0.004},
           {"counting", {}, "ood-long", always<10>, 0.171, 0.004},
           {"counting", {{"vars", "3"}}, "train", always<10>, 0.214, 0.004},
           {"cycle-navigation", twenty, "train", always<0>, 0.22},
           {"cycle-navigation", twenty, "train", last_move, 0.26},
           {"cycle-navigation", twenty, "ood-long", last_move, 0.2},
           {"even-pairs", twenty, "train", always<0>, 0.525},
           {"even-pairs", twenty, "train", last_symbol, 0.5},
           {"flip-flop", {}, "train", always<3>, 0.5},
           {"group-word", {{"group", "s3"}}, "in-distribution", always<0>, 1.0 / 6},
           {"group-word", {{"length", "8"}}, "train", same_symbol, (1 + 7.0 / 60) / 8},
           {"last-sentence", {}, "train", always<22>, 0.214, 0.012},
           {"last-sentence", {}, "train", names_in_sentences<0, 100>, 0.02, 0.01},
           {"last-sentence", {}, "train", names_in_sentences<1, 1>, 0.152, 0.025},
           {"last-x", {}, "ood-far", always<0>, 0.125},
           {"missing-duplicate", {}, "ood-long", always<0>, 0.5},
           {"missing-duplicate", {}, "train", left_neighbour, 0.5125},
           {"modular-arithmetic", twenty, "train", always<0>, 0.212, 0.001},
           {"modular-arithmetic", twenty, "train", last_product, 0.345, 0.001},
           {"modular-arithmetic", brackets, "train", always<0>, 0.253, 0.001},
           {"modular-arithmetic", brackets, "ood-long", always<0>, 0.289, 0.001},
           {"mqar-update", {{"pairs", "8"}}, "train", value_before<false>, 0.5},
           {"n-back", {{"n", "1"}}, "train", value_before<true>, 1},
           {"n-back", {}, "train", value_before<true>, 1.0 / 32},
           {"parity", twenty, "train", always<0>, 0.5},
           {"passkey", {}, "train", last_statement, 0.55},
           {"passkey", {}, "ood-decoys", last_statement, 0.325},
           {"selective-copy", {}, "train", always<14>, 1.0 / 15},
           {"string-map", twenty, "train", previous_output, 1.0 / 26},
           {"string-map", {{"map", "sort"}, {"max-length", "20"}}, "train", previous_output, 0.694, 0.005},
           {"string-map", {{"map", "sort"}, {"max-length", "20"}}, "ood-long", previous_output, 0.8875, 0.005}}) {
    constexpr std::int64_t sequences = 1000;
    const auto task = make_task(row.task, row.settings);
    // The share over all answers, with the squared standard error of a ratio of two sums over sequences.
    std::vector<std::pair<double, double>> found;
    double right = 0, all = 0, squares = 0;
    for (std::int64_t index = 0; index < sequences; ++index) {
      const Example example = task->example(row.split, index);
      auto& [own_right, own_all] = found.emplace_back();
      for (std::size_t t = 0; t < example.tokens.size(); ++t) {
        if (example.score_mask[t] == 0) continue;
        ++own_all;
        own_right += row.guess(example, t) == example.targets[t];
      }
      right += own_right, all += own_all;
    }
    for (const auto& [own_right, own_all] : found) squares += std::pow(own_right - right / all * own_all, 2);
    EXPECT_NEAR(right / all, row.right, 4 * std::sqrt(squares) / all + row.tolerance)
        << row.task << " " << row.split << " " << to_text(row.right);
  }
}

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

}  // namespace tally::toy_guesses_test
