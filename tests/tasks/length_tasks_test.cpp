// Tasks with prompts of many lengths: answers, splits, frequencies of answers, and the error rates of baselines.
#include <gtest/gtest.h>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::length_tasks_test {

using testing::make_task;
using testing::Mean;
using testing::Settings;

// The answers to the beginnings of a prompt, by the task's definition.
std::vector<std::int32_t> parities(const std::vector<std::int32_t>& bits) {
  std::vector<std::int32_t> answers;
  std::int32_t ones = 0;
  for (const std::int32_t bit : bits) answers.push_back((ones += bit) % 2);
  return answers;
}

std::vector<std::int32_t> unequal_neighbours(const std::vector<std::int32_t>& bits) {
  std::vector<std::int32_t> answers;
  for (const std::int32_t bit : bits) answers.push_back(bits.front() ^ bit);
  return answers;
}
std::vector<std::int32_t> states(const std::vector<std::int32_t>& actions) {
  std::vector<std::int32_t> answers;
  std::int32_t state = 0;
  for (const std::int32_t action : actions) {
    state += action - 6;  // ids 5, 6, 7: back, stay, on
    answers.push_back((state % 5 + 5) % 5);
  }
  return answers;
}

struct RegularTask {
  const char* name;
  std::int32_t separator;
  std::vector<std::int32_t> (*answers)(const std::vector<std::int32_t>& prompt);
};
const std::vector<RegularTask> regular_tasks{
    {"parity", 2, parities}, {"even-pairs", 2, unequal_neighbours}, {"cycle-navigation", 8, states}};

TEST(RegularTasks, TheAnswerStandsAtTheSeparator) {
  for (const RegularTask& one : regular_tasks) {
    for (const bool every : {false, true}) {
      const auto task = make_task(one.name, {{"max-length", "12"}, {"every", every ? "true" : "false"}});
      EXPECT_EQ(task->breakdown(), "length");
      for (const Split& split : task->splits()) {
        testing::for_each_example(*task, split.name, 30, [&](const Example& example) {
          std::vector<std::int32_t> prompt = example.tokens;
          ASSERT_EQ(prompt.back(), one.separator);
          prompt.pop_back();
          const std::vector<std::int32_t> answers = one.answers(prompt);
          ASSERT_EQ(example.targets.back(), answers.back()) << one.name << " " << task->text(example);
          for (std::size_t t = 0; t < prompt.size(); ++t) {
            ASSERT_EQ(example.score_mask[t], 0);
            ASSERT_EQ(example.loss_mask[t], every);
            ASSERT_EQ(example.targets[t], every ? answers[t] : 0);
          }
          ASSERT_EQ(example.score_mask.back() + example.loss_mask.back(), 2);
          ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(prompt.size()));
        });
      }
    }
  }
}

TEST(LengthSplits, CoverWhatTheyPromise) {
  for (const RegularTask& one : regular_tasks) {
    const auto task = make_task(one.name, {{"max-length", "4"}});
    ASSERT_EQ(task->splits().size(), 4u);
    const std::vector<std::pair<std::size_t, std::size_t>> ranges{{1, 4}, {1, 4}, {5, 10}, {11, 50}};
    for (std::size_t i = 0; i < 4; ++i) {
      const Split& split = task->splits()[i];
      EXPECT_EQ(split.length, static_cast<std::int64_t>(ranges[i].second + 1)) << split.name;
      Mean length;
      std::vector<int> seen(ranges[i].second + 1);
      testing::for_each_example(*task, split.name, 1000, [&](const Example& example) {
        const std::size_t n = example.tokens.size() - 1;
        ASSERT_TRUE(ranges[i].first <= n && n <= ranges[i].second);
        ++seen[n];
        length.add(static_cast<double>(n));
      });
      for (std::size_t n = ranges[i].first; n <= ranges[i].second; ++n) EXPECT_GT(seen[n], 0) << n;
      length.expect_exact(static_cast<double>(ranges[i].first + ranges[i].second) / 2, split.name);
    }
    EXPECT_EQ(make_task(one.name, {{"far-count", "0"}})->splits().size(), 3u);
    EXPECT_EQ(make_task(one.name)->splits().back().length, 501);
  }
}

// Frequencies of the answers 0, 1, ...
void expect_answers(const std::string& name, const Settings& settings, const char* split,
                    const std::vector<double>& shares) {
  const auto task = make_task(name, settings);
  std::vector<double> seen(shares.size());
  constexpr std::int64_t sequences = 10'000;
  testing::for_each_example(*task, split, sequences,
                            [&](const Example& e) { ++seen.at(static_cast<std::size_t>(e.targets.back())); });
  for (std::size_t answer = 0; answer < shares.size(); ++answer) {
    testing::expect_share(seen[answer], sequences, shares[answer], name + " " + split + " " + std::to_string(answer));
  }
}

const Settings twenty{{"max-length", "20"}, {"eval-count", "20000"}};
const Settings forty{{"max-length", "40"}};

// The share of sequences whose answer `guess` finds in the prompt's last token.
void expect_last(const char* name, const Settings& settings, const char* split, double share,
                 std::int32_t (*guess)(std::int32_t)) {
  Mean right;
  testing::for_each_example(*make_task(name, settings), split, 10'000, [&](const Example& example) {
    right.add(guess(example.tokens[example.tokens.size() - 2]) == example.targets.back());
  });
  right.expect_exact(share, split);
}

TEST(RegularTasks, CheckNumbers) {
  expect_answers("parity", twenty, "train", {0.5, 0.5});
  expect_answers("parity", twenty, "ood-long", {0.5, 0.5});
  expect_answers("even-pairs", twenty, "train", {0.525, 0.475});
  expect_answers("even-pairs", twenty, "ood-long", {0.5, 0.5});
  expect_answers("even-pairs", forty, "train", {0.5125, 0.4875});
  expect_last("even-pairs", twenty, "train", 0.5, [](std::int32_t bit) { return bit; });
  expect_answers("cycle-navigation", twenty, "train", {0.22, 0.21, 0.18, 0.18, 0.21});
  expect_answers("cycle-navigation", twenty, "ood-long", {0.2, 0.2, 0.2, 0.2, 0.2});
  expect_answers("cycle-navigation", forty, "train", {0.21, 0.205, 0.19, 0.19, 0.205});
  const auto moved = [](std::int32_t action) { return (action - 6 + 5) % 5; };
  expect_last("cycle-navigation", twenty, "train", 0.26, moved);
  expect_last("cycle-navigation", forty, "train", 0.23, moved);
  expect_last("cycle-navigation", twenty, "ood-long", 0.2, moved);
}

// The value mod 5 of tokens[at..], * before + and -; `at` is advanced past it.
std::int32_t value_of(const std::vector<std::int32_t>& tokens, std::size_t& at);
std::int32_t factor_of(const std::vector<std::int32_t>& tokens, std::size_t& at) {
  const std::int32_t token = tokens.at(at++);
  if (token < 5) return token;
  if (token == 6) return (5 - factor_of(tokens, at)) % 5;
  EXPECT_EQ(token, 8);
  const std::int32_t value = value_of(tokens, at);
  EXPECT_EQ(tokens.at(at++), 9);
  return value;
}
std::int32_t product_of(const std::vector<std::int32_t>& tokens, std::size_t& at) {
  std::int32_t value = factor_of(tokens, at);
  while (tokens.at(at) == 7) value = value * factor_of(tokens, ++at) % 5;
  return value;
}
std::int32_t value_of(const std::vector<std::int32_t>& tokens, std::size_t& at) {
  std::int32_t value = product_of(tokens, at);
  while (tokens.at(at) == 5 || tokens.at(at) == 6) {
    const bool adds = tokens.at(at++) == 5;
    const std::int32_t next = product_of(tokens, at);
    value = (value + (adds ? next : 5 - next)) % 5;
  }
  return value;
}

TEST(ModularArithmetic, TheAnswerIsTheValue) {
  for (const char* form : {"simple", "brackets"}) {
    const auto task = make_task("modular-arithmetic", {{"form", form}});
    for (const Split& split : task->splits()) {
      testing::for_each_example(*task, split.name, 100, [&](const Example& example) {
        std::size_t at = 0;
        ASSERT_EQ(value_of(example.tokens, at), example.targets.back()) << task->text(example);
        ASSERT_EQ(at, example.tokens.size() - 1);
        ASSERT_EQ(example.tokens.back(), 10);
        ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(at));
      });
    }
  }
  const auto task = make_task("modular-arithmetic");
  std::size_t at = 0;
  EXPECT_EQ(value_of(task->encode("3+4*2-0="), at), 1);
  at = 0;
  EXPECT_EQ(value_of(task->encode("((-3)*(2-4))="), at), 1);
}

TEST(ModularArithmetic, CheckNumbers) {
  const auto expect_zeros = [](const char* form, const char* length, const char* split, double zero) {
    const double other = (1 - zero) / 4;
    expect_answers("modular-arithmetic", {{"form", form}, {"max-length", length}, {"eval-count", "20000"}}, split,
                   {zero, other, other, other, other});
  };
  const auto expect_simple = [&](const char* length, const char* split, double zero, double operators,
                                 double last_product) {
    const auto task = make_task("modular-arithmetic", {{"max-length", length}, {"eval-count", "20000"}});
    Mean count, right;
    testing::for_each_example(*task, split, 5000, [&](const Example& example) {
      const auto& tokens = example.tokens;
      count.add(static_cast<double>(tokens.size() - 2) / 2);
      std::size_t at = tokens.size() - 2;
      while (at > 0 && tokens[at - 1] == 7) at -= 2;
      right.add(product_of(tokens, at) == example.targets.back());
    });
    count.expect_exact(operators, split);
    right.expect_exact(last_product, split);
    expect_zeros("simple", length, split, zero);
  };
  expect_simple("20", "train", 0.212, 4.5, 0.345);
  expect_simple("20", "ood-long", 0.2, 17, 0.2);
  expect_simple("40", "train", 0.206, 9.5, 0.267);
  expect_zeros("brackets", "20", "train", 0.253);
  expect_zeros("brackets", "20", "ood-long", 0.289);
  expect_zeros("brackets", "40", "train", 0.270);
  expect_zeros("brackets", "40", "ood-long", 0.299);
}

std::vector<std::int32_t> mapped(const std::string& map, std::vector<std::int32_t> string) {
  const std::vector<std::int32_t> once = string;
  if (map == "reverse") std::reverse(string.begin(), string.end());
  if (map == "sort") std::sort(string.begin(), string.end());
  if (map == "duplicate") string.insert(string.end(), once.begin(), once.end());
  return string;
}

TEST(StringMap, OutputsAreThoseOfTheMap) {
  for (const std::string map : {"copy", "reverse", "duplicate", "sort"}) {
    const auto task = make_task("string-map", {{"map", map}, {"max-length", "8"}});
    EXPECT_TRUE(task->scores_sequences());
    const std::size_t alphabet = map == "copy" ? 26 : map == "sort" ? 5 : 2;
    ASSERT_EQ(task->vocabulary().size(), alphabet + 1);
    for (const Split& split : task->splits()) {
      testing::for_each_example(*task, split.name, 30, [&](const Example& example) {
        const auto& tokens = example.tokens;
        const auto separator = std::find(tokens.begin(), tokens.end(), static_cast<std::int32_t>(alphabet));
        const auto n = static_cast<std::size_t>(separator - tokens.begin());
        const std::vector<std::int32_t> outputs(separator + 1, tokens.end());
        ASSERT_EQ(outputs, mapped(map, {tokens.begin(), separator})) << task->text(example);
        for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
          ASSERT_EQ(example.targets[t], tokens[t + 1]);
          ASSERT_EQ(example.score_mask[t], t >= n);
          ASSERT_EQ(example.loss_mask[t], t >= n);
        }
        ASSERT_EQ(example.score_mask.back(), 0);
        ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(n));
      });
    }
  }
}

TEST(StringMap, CheckNumbers) {
  struct Row {
    const char *map, *alphabet, *length, *split;
    double outputs, error, tolerance;
  };
  for (const Row& row : {Row{"copy", "26", "20", "train", 10.5, 0.9615, 0.003},
                         {"copy", "26", "20", "ood-long", 35.5, 0.9615, 0.003},
                         {"copy", "26", "40", "train", 20.5, 0.9615, 0.003},
                         {"copy", "2", "20", "train", 10.5, 0.5, 0.005},
                         {"reverse", "2", "20", "ood-long", 35.5, 0.5, 0.005},
                         {"duplicate", "2", "20", "train", 21, 0.5, 0.005},
                         {"duplicate", "2", "40", "train", 41, 0.5, 0.005},
                         {"sort", "5", "20", "train", 10.5, 0.3056, 0.005},
                         {"sort", "5", "20", "ood-long", 35.5, 0.1125, 0.005},
                         {"sort", "5", "40", "train", 20.5, 0.1756, 0.005}}) {
    const auto task =
        make_task("string-map",
                  {{"map", row.map}, {"alphabet", row.alphabet}, {"max-length", row.length}, {"eval-count", "5000"}});
    Mean outputs, tokens, again;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      const std::size_t n = static_cast<std::size_t>(example.keys.back());
      double wrong = 0;
      for (std::size_t t = n; t + 1 < example.tokens.size(); ++t) {
        const std::int32_t previous = t == n ? 0 : example.tokens[t];
        wrong += previous != example.targets[t];
      }
      again.add(wrong, static_cast<double>(example.tokens.size() - 1 - n));
      outputs.add(testing::scored_positions(example));
      tokens.add(static_cast<double>(example.tokens.size()));
    });
    outputs.expect_exact(row.outputs, row.map);
    const double n = std::string(row.map) == "duplicate" ? row.outputs / 2 : row.outputs;
    tokens.expect_exact(n + 1 + row.outputs, row.map);
    again.expect_near(row.error, row.tolerance, formatted("{} {} {}", row.map, row.alphabet, row.split));
  }
}

TEST(MissingDuplicate, TheAnswerIsTheBitOfTheTwin) {
  const auto task = make_task("missing-duplicate", {{"max-length", "40"}, {"eval-count", "5000"}});
  struct Row {
    const char* split;
    std::size_t least, most;
    double distance, neighbour;
  };
  for (const Row& row : {Row{"train", 1, 20, 11.0, 0.5125}, {"ood-long", 21, 50, 36.0, 0.5}}) {
    Mean ones, second_half, distance, neighbour;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      const auto& tokens = example.tokens;
      const std::size_t m = tokens.size() / 2;
      ASSERT_EQ(tokens.size(), 2 * m + 1);
      ASSERT_TRUE(row.least <= m && m <= row.most);
      ASSERT_EQ(tokens.back(), 3);
      ASSERT_EQ(std::count(tokens.begin(), tokens.end(), 2), 1);
      const auto blank = static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), 2) - tokens.begin());
      const std::size_t twin = (blank + m) % (2 * m);
      ASSERT_EQ(tokens[twin], example.targets.back());
      for (std::size_t i = 0; i < m; ++i) {
        if (i != blank % m) {
          ASSERT_EQ(tokens[i], tokens[m + i]);
        }
      }
      ASSERT_EQ(example.keys.back(), static_cast<std::int32_t>(2 * m));
      ASSERT_EQ(testing::scored_positions(example), 1);
      ones.add(example.targets.back());
      second_half.add(blank >= m);
      distance.add(static_cast<double>(2 * m - twin));
      neighbour.add(blank == 0 ? 0.5 : tokens[blank - 1] == example.targets.back());  // the first position has none
    });
    ones.expect_exact(0.5, row.split);
    second_half.expect_exact(0.5, row.split);
    distance.expect_exact(row.distance, row.split);
    neighbour.expect_exact(row.neighbour, row.split);
  }
  EXPECT_EQ(task->splits().back().length, 501);
}

}  // namespace tally::length_tasks_test
