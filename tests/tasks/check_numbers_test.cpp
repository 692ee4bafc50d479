// Check numbers: means over many sequences of each toy task, compared with numbers that follow from its distribution or
// were measured with another generator.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tests/tasks/make_task.hpp"

namespace tally::check_numbers_test {

using testing::make_task;
using testing::Settings;
using Tokens = std::vector<std::int32_t>;

// The contribution of a sequence to a mean: its sum over `count` answers, or one number.
struct Share {
  double sum;
  double count = 1;
};
struct Statistic {
  std::string name;
  std::function<Share(const Example&)> of;
};

// The mean over all answers of all sequences.
class Mean {
 public:
  void add(const Share& share) {
    ++n_;
    sum_ += share.sum;
    count_ += share.count;
    squares_ += share.sum * share.sum;
    products_ += share.sum * share.count;
    count_squares_ += share.count * share.count;
  }
  double mean() const { return sum_ / count_; }
  // n times the squared standard error of the mean, which is a ratio of sums.
  double variance() const {
    const double residuals = squares_ - 2 * mean() * products_ + mean() * mean() * count_squares_;
    return std::max(0.0, n_ * residuals / (count_ * count_));
  }
  double sequences() const { return n_; }

 private:
  double n_ = 0, sum_ = 0, count_ = 0, squares_ = 0, products_ = 0, count_squares_ = 0;
};

// A number that was measured with another generator has a tolerance: four standard errors of its difference from a mean
// over 20,000 sequences.
struct Number {
  Number(double number, double most = 0) : expected(number), tolerance(most) {}
  double expected, tolerance;
};

void expect_number(const Mean& found, const Number& number, const std::string& what) {
  const double squared_error = std::max(0.0, number.tolerance * number.tolerance / 16 - found.variance() / 20'000);
  const double error = std::sqrt(squared_error + found.variance() / found.sequences());
  EXPECT_NEAR(found.mean(), number.expected, 4 * error + 1e-12) << what;
}

struct Row {
  Settings settings;
  const char* split;
  std::vector<Number> numbers;  // one for each statistic
};

void expect_numbers(const char* task_name, const std::vector<Statistic>& statistics, const std::vector<Row>& rows,
                    std::int64_t sequences = 3000) {
  for (const Row& row : rows) {
    ASSERT_EQ(row.numbers.size(), statistics.size());
    Settings settings = row.settings;
    const bool is_finite = std::string_view(task_name) == "counting";  // it draws no more training programs than these
    settings.emplace_back(is_finite ? "train-count" : "eval-count", std::to_string(sequences));
    const auto task = make_task(task_name, settings);
    std::vector<Mean> means(statistics.size());
    for (std::int64_t index = 0; index < sequences; ++index) {
      const Example example = task->example(row.split, index);
      for (std::size_t n = 0; n < means.size(); ++n) means[n].add(statistics[n].of(example));
    }
    for (std::size_t n = 0; n < means.size(); ++n) {
      std::string what = formatted("{} {}", task_name, row.split);
      for (const auto& [option, value] : row.settings) what += formatted(" {}={}", option, value);
      expect_number(means[n], row.numbers[n], formatted("{}: {}", what, statistics[n].name));
    }
  }
}

double number(auto n) { return static_cast<double>(n); }

std::size_t find(const Tokens& tokens, std::int32_t token) {
  return static_cast<std::size_t>(std::ranges::find(tokens, token) - tokens.begin());
}

// Statistics of any task.

Statistic of_sequences(const std::string& name, std::function<double(const Example&)> value) {
  return {name, [value](const Example& example) { return Share{value(example)}; }};
}
const Statistic tokens_fed =
    of_sequences("tokens", [](const Example& example) { return number(example.tokens.size()); });
const Statistic scored = of_sequences(
    "scored tokens", [](const Example& example) { return number(std::ranges::count(example.score_mask, 1)); });

// A sum over the positions that are scored.
Statistic over_answers(const std::string& name, std::function<double(const Example&, std::size_t t)> add) {
  return {name, [add](const Example& example) {
            Share share{0, 0};
            for (std::size_t t = 0; t < example.tokens.size(); ++t) {
              if (example.score_mask[t] == 0) continue;
              share.sum += add(example, t);
              ++share.count;
            }
            return share;
          }};
}
// How often this token is the answer.
Statistic answer(std::int32_t token) {
  return over_answers(formatted("answer {}", token),
                      [token](const Example& example, std::size_t t) { return example.targets[t] == token ? 1 : 0; });
}
// How often a simple strategy finds the answer.
Statistic guess(const std::string& name, std::function<std::int32_t(const Example&, std::size_t t)> guessed) {
  return over_answers(name, [guessed](const Example& example, std::size_t t) {
    return guessed(example, t) == example.targets[t] ? 1 : 0;
  });
}

TEST(CheckNumbers, FlipFlop) {
  constexpr std::int32_t one = 4;
  expect_numbers("flip-flop", {scored, answer(one)},
                 {{{}, "train", {26.4, 0.5}},
                  {{}, "in-distribution", {26.4, 0.5}},
                  {{}, "ood-sparse", {3.54, 0.5}},
                  {{}, "ood-dense", {115.3, 0.5}}},
                 1000);
}

TEST(CheckNumbers, Counting) {
  enum : std::int32_t { equals = 11, semicolon, increment, pass };
  const Statistic operations = of_sequences("operations", [](const Example& example) {
    return number(std::ranges::count_if(
        example.tokens, [](auto token) { return token == equals || token == increment || token == pass; }));
  });
  const Statistic tokens =
      of_sequences("tokens", [](const Example& example) { return number(example.tokens.size() + 1); });
  const Statistic over_512 =
      of_sequences("over 512 tokens", [](const Example& example) { return example.tokens.size() + 1 > 512; });
  const Statistic distance = of_sequences("distance to the set", [](const Example& example) {
    const std::size_t print = example.tokens.size() - 2;
    std::size_t set = print - 1;
    while (example.tokens[set] != example.tokens.back() || example.tokens[set + 1] != equals) --set;
    return number(print - set);
  });
  const auto settings = [](const char* vars, const char* pass_weight) {
    return Settings{{"vars", vars}, {"pass-weight", pass_weight}, {"max-tokens", "4000"}};
  };
  expect_numbers("counting", {operations, tokens, over_512, answer(10), answer(0), distance},
                 {{settings("1", "50"), "train", {278.6, 320.3, 0.141, 0.203, 0.142, 55.7}},
                  {settings("1", "100"), "train", {294.2, 318.6, 0.088, 0.171, 0.155, 86.9}},
                  {settings("1", "10"), "train", {261.5, 395.1, 0.345, 0.173, 0.141, 21.5}},
                  {settings("3", "50"), "train", {278.7, 320.3, 0.141, 0.214, 0.139, 111.7}},
                  {settings("5", "50"), "train", {278.9, 320.5, 0.142, 0.215, 0.140, 131.4}}},
                 20'000);
}

// Recall: the positions before t at which the key at t has a value, the earliest first.
std::vector<std::size_t> assignments(const Example& example, std::size_t t) {
  std::vector<std::size_t> all;
  for (std::size_t at = 0; at < t; at += 2) {
    if (example.tokens[at] == example.tokens[t]) all.push_back(at);
  }
  return all;
}
Statistic distance_to_assignment(std::size_t n) {
  return over_answers(formatted("distance to the {}th last value", n), [n](const Example& example, std::size_t t) {
    const std::vector<std::size_t> all = assignments(example, t);
    return number(t - all.at(all.size() - n));
  });
}
const Statistic first_value = guess("the first value", [](const Example& example, std::size_t t) {
  return example.tokens[assignments(example, t).front() + 1];
});
const Statistic latest_value = guess("the latest value", [](const Example& example, std::size_t t) {
  return example.tokens[assignments(example, t).back() + 1];
});

TEST(CheckNumbers, Mqar) {
  const Statistic asks_first = of_sequences("the first query asks pair 1", [](const Example& example) {
    const std::size_t first =
        static_cast<std::size_t>(std::ranges::find(example.score_mask, 1) - example.score_mask.begin());
    return example.tokens[first] == example.tokens[0];
  });
  const Statistic slot_0 = of_sequences("slot 0 taken", [](const Example& example) {
    const std::size_t context = 2 * static_cast<std::size_t>(std::ranges::count(example.score_mask, 1));
    return static_cast<double>(example.score_mask[context]);
  });
  const Statistic last_query = of_sequences("last query", [](const Example& example) {
    std::size_t last = example.score_mask.size() - 1;
    while (example.score_mask[last] == 0) --last;
    return number(last);
  });
  const auto settings = [](const char* vocabulary, const char* pairs, const char* length) {
    return Settings{{"vocabulary", vocabulary}, {"pairs", pairs}, {"length", length}};
  };
  const Settings usual = settings("256", "8", "64");
  expect_numbers(
      "mqar", {scored, distance_to_assignment(1), asks_first, slot_0, last_query},
      {{usual, "train", {8, {23.83, 0.2}, {0.269, 0.023}, {0.9596, 0.011}, {53.0, 0.4}}},
       {settings("8192", "4", "64"), "train", {4, {19.35, 0.35}, {0.330, 0.023}, {0.730, 0.022}, {40.3, 0.7}}},
       {settings("8192", "16", "256"), "train", {16, {73.5, 0.6}, {0.193, 0.023}, {0.9845, 0.006}, {216.6, 1.5}}},
       {usual, "ood-dense", {16, 32, {0.294, 0.023}, 1, 62}},
       {usual, "ood-long", {8, {37.29, 0.45}, {0.236, 0.023}, {0.895, 0.016}, {95.9, 1.1}}}});
  const Statistic false_queries = of_sequences("keys in the filler", [](const Example& example) {
    constexpr std::size_t pairs = 8;
    std::set<std::int32_t> keys;
    for (std::size_t t = 0; t < 2 * pairs; t += 2) keys.insert(example.tokens[t]);
    double count = 0;
    for (std::size_t t = 2 * pairs; t < example.tokens.size(); ++t) {
      count += example.score_mask[t] == 0 && keys.contains(example.tokens[t]);
    }
    return count;
  });
  Settings random_filler = usual;
  random_filler.emplace_back("filler", "random");
  expect_numbers("mqar", {false_queries}, {{random_filler, "train", {1.25}}});
}

TEST(CheckNumbers, MqarUpdate) {
  const Statistic shared = over_answers("latest value of another key", [](const Example& example, std::size_t t) {
    std::size_t same = 0;
    for (std::size_t other = 0; other < example.tokens.size(); ++other) {
      same += example.score_mask[other] != 0 && example.targets[other] == example.targets[t];
    }
    return same > 1 ? 1 : 0;
  });
  const auto settings = [](const char* vocabulary, const char* pairs) {
    return Settings{{"vocabulary", vocabulary}, {"pairs", pairs}, {"length", "64"}};
  };
  expect_numbers("mqar-update", {first_value, distance_to_assignment(1), shared},
                 {{settings("256", "8"), "train", {0.5, {23.98, 0.2}, {0.046, 0.007}}},
                  {settings("8192", "4"), "train", {0, {17.6, 0.4}, {0.0008, 0.007}}},
                  {settings("256", "8"), "ood-all", {0, {20.04, 0.15}, {0.053, 0.007}}}});
}

TEST(CheckNumbers, NBack) {
  const auto expect = [](std::size_t n, const char* symbols, const char* pairs, const std::vector<Number>& numbers,
                         std::int64_t sequences) {
    const Settings settings{{"keys", symbols}, {"values", symbols}, {"pairs", pairs}, {"n", std::to_string(n)}};
    expect_numbers("n-back", {scored, distance_to_assignment(n), latest_value}, {{settings, "train", numbers}},
                   sequences);
  };
  expect(1, "8", "64", {56.002, {14.01, 0.06}, 1}, 2000);
  expect(2, "8", "64", {48.017, {27.38, 0.12}, 1.0 / 8}, 2000);
  expect(3, "8", "64", {40.097, {39.87, 0.2}, 1.0 / 8}, 2000);
  expect(2, "32", "384", {320.002, {115.6, 0.2}, 1.0 / 32}, 1000);
}

TEST(CheckNumbers, GroupWord) {
  const Statistic same_symbol =
      guess("the same symbol", [](const Example& example, std::size_t t) { return example.tokens[t]; });
  expect_numbers("group-word", {same_symbol, answer(0), answer(59)},
                 {{{{"group", "a5"}, {"length", "8"}}, "train", {(1 + 7.0 / 60) / 8, 1.0 / 60, 1.0 / 60}}});
  expect_numbers("group-word", {same_symbol, answer(0), answer(1), answer(2), answer(3), answer(4), answer(5)},
                 {{{{"group", "s3"}, {"length", "16"}},
                   "train",
                   {(1 + 15.0 / 6) / 16, 1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 6}}});
}

const Settings twenty{{"max-length", "20"}}, forty{{"max-length", "40"}};

TEST(CheckNumbers, RegularLanguages) {
  const std::vector<Row> fair{{twenty, "train", {0.5, 0.5}}, {twenty, "ood-long", {0.5, 0.5}}};
  expect_numbers("parity", {answer(0), answer(1)}, fair, 10'000);
  const Statistic last_bit =
      guess("the last bit", [](const Example& example, std::size_t t) { return example.tokens[t - 1]; });
  expect_numbers("even-pairs", {answer(0), last_bit},
                 {{twenty, "train", {0.525, 0.5}}, {twenty, "ood-long", {0.5, 0.5}}, {forty, "train", {0.5125, 0.5}}},
                 10'000);
  const Statistic last_move = guess("the last action only", [](const Example& example, std::size_t t) {
    return (example.tokens[t - 1] - 6 + 5) % 5;
  });
  expect_numbers("cycle-navigation", {answer(0), answer(1), answer(2), answer(3), answer(4), last_move},
                 {{twenty, "train", {0.22, 0.21, 0.18, 0.18, 0.21, 0.26}},
                  {twenty, "ood-long", {0.2, 0.2, 0.2, 0.2, 0.2, 0.2}},
                  {forty, "train", {0.21, 0.205, 0.19, 0.19, 0.205, 0.23}}},
                 10'000);
}

TEST(CheckNumbers, ModularArithmetic) {
  const Statistic operators =
      of_sequences("operators", [](const Example& example) { return number(example.tokens.size() - 2) / 2; });
  const Statistic last_product = guess("the last product only", [](const Example& example, std::size_t t) {
    std::int32_t product = example.tokens[t - 1];
    for (std::size_t at = t - 1; at > 0 && example.tokens[at - 1] == 7; at -= 2) {
      product = product * example.tokens[at - 2] % 5;
    }
    return product;
  });
  expect_numbers("modular-arithmetic", {answer(0), answer(1), answer(2), answer(3), answer(4), operators, last_product},
                 {{twenty, "train", {0.212, 0.197, 0.197, 0.197, 0.197, 4.5, 0.345}},
                  {twenty, "ood-long", {0.2, 0.2, 0.2, 0.2, 0.2, 17, 0.2}},
                  {forty, "train", {0.206, 0.1985, 0.1985, 0.1985, 0.1985, 9.5, 0.267}}},
                 10'000);
  const Settings brackets_20{{"max-length", "20"}, {"form", "brackets"}},
      brackets_40{{"max-length", "40"}, {"form", "brackets"}};
  expect_numbers("modular-arithmetic", {answer(0), answer(1), answer(2), answer(3), answer(4)},
                 {{brackets_20, "train", {0.253, 0.187, 0.187, 0.187, 0.187}},
                  {brackets_20, "ood-long", {0.289, 0.178, 0.178, 0.178, 0.178}},
                  {brackets_40, "train", {0.270, 0.1825, 0.1825, 0.1825, 0.1825}},
                  {brackets_40, "ood-long", {0.299, 0.175, 0.175, 0.175, 0.175}}},
                 10'000);
}

TEST(CheckNumbers, StringMap) {
  const Statistic previous_output = guess("the previous output", [](const Example& example, std::size_t t) {
    return t > 0 && example.score_mask[t - 1] != 0 ? example.tokens[t] : 0;
  });
  const auto settings = [](const char* map, const char* alphabet, const char* length) {
    return Settings{{"map", map}, {"alphabet", alphabet}, {"max-length", length}};
  };
  expect_numbers("string-map", {scored, tokens_fed, previous_output},
                 {{settings("copy", "26", "20"), "train", {10.5, 22, 1.0 / 26}},
                  {settings("copy", "26", "20"), "ood-long", {35.5, 72, 1.0 / 26}},
                  {settings("copy", "26", "40"), "train", {20.5, 42, 1.0 / 26}},
                  {settings("copy", "2", "20"), "train", {10.5, 22, 0.5}},
                  {settings("reverse", "2", "20"), "ood-long", {35.5, 72, 0.5}},
                  {settings("duplicate", "2", "20"), "train", {21, 32.5, 0.5}},
                  {settings("duplicate", "2", "40"), "train", {41, 62.5, 0.5}},
                  {settings("sort", "5", "20"), "train", {10.5, 22, 0.6944}},
                  {settings("sort", "5", "20"), "ood-long", {35.5, 72, 0.8875}},
                  {settings("sort", "5", "40"), "train", {20.5, 42, 0.8244}}});
}

TEST(CheckNumbers, MissingDuplicate) {
  const Statistic second_half = of_sequences("blank in the second half", [](const Example& example) {
    return 2 * find(example.tokens, 2) >= example.tokens.size() - 1;
  });
  const Statistic distance = of_sequences("distance to the twin", [](const Example& example) {
    const std::size_t length = example.tokens.size() - 1, twin = (find(example.tokens, 2) + length / 2) % length;
    return number(length - twin);
  });
  // At the first position there is no left neighbour; a guess is right in half of all sequences.
  const Statistic left_neighbour = of_sequences("the left neighbour", [](const Example& example) {
    const std::size_t blank = find(example.tokens, 2);
    return blank == 0 ? 0.5 : example.tokens[blank - 1] == example.targets.back();
  });
  expect_numbers("missing-duplicate", {answer(1), second_half, distance, left_neighbour},
                 {{forty, "train", {0.5, 0.5, 11, 0.5125}}, {forty, "ood-long", {0.5, 0.5, 36, 0.5}}}, 5000);
}

// Sums with the least significant digit first: the columns of a sequence that are added without carries.
struct Columns {
  explicit Columns(const Example& example) {
    const Tokens& tokens = example.tokens;
    const std::int32_t base = tokens.back() - 2;
    const std::size_t plus = find(tokens, base), equals = find(tokens, base + 1);
    const std::size_t second = equals - plus - 1;
    count = std::max(plus, second);
    is_longer = tokens.size() - equals - 2 > count;
    std::int32_t carry = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t sum = (i < plus ? tokens[i] : 0) + (i < second ? tokens[plus + 1 + i] : 0);
      wrong += sum % base != tokens[equals + 1 + i];
      carry = (sum + carry) / base;
      carries += carry;
    }
    // Without the last digit, the end token takes its position, and the end's own position is empty.
    if (is_longer) wrong += 2;
  }
  std::size_t count;
  bool is_longer;
  double carries = 0, wrong = 0;
};

TEST(CheckNumbers, Addition) {
  const Statistic carries = of_sequences("carries", [](const Example& example) { return Columns(example).carries; });
  const Statistic longer =
      of_sequences("a longer sum", [](const Example& example) { return Columns(example).is_longer; });
  const Statistic sequences_right = of_sequences("sequences right without carries",
                                                 [](const Example& example) { return Columns(example).wrong == 0; });
  const Statistic tokens_wrong{"tokens wrong without carries", [](const Example& example) {
                                 return Share{Columns(example).wrong, scored.of(example).sum};
                               }};
  const Settings little{{"order", "little"}}, equal{{"order", "little"}, {"equal", "true"}},
      binary{{"order", "little"}, {"equal", "true"}, {"base", "2"}, {"max-digits", "20"}};
  using Numbers = std::vector<Number>;
  const Numbers of_train{{17.88, 0.25}, {6.89, 0.1}, {1.63, 0.07}, {0.088, 0.015}, {0.226, 0.022}, {0.249, 0.012}};
  const Numbers of_long{{41.83, 0.25}, {14.87, 0.1}, {5.63, 0.11}, {0.093, 0.015}, {0.0016, 0.003}, {0.385, 0.012}};
  const Numbers of_equal{{17.16, 0.35}, {6.11, 0.12}, {2.30, 0.09}, {0.59, 0.026}, {0.13, 0.018}, {0.472, 0.012}};
  const Numbers of_binary{{35.36, 0.9}, {12.43, 0.3}, {5.23, 0.2}, {0.959, 0.011}, {0.041, 0.011}, {0.498, 0.012}};
  expect_numbers("addition", {tokens_fed, scored, carries, longer, sequences_right, tokens_wrong},
                 {{little, "train", of_train},
                  {little, "ood-long", of_long},
                  {equal, "train", of_equal},
                  {binary, "train", of_binary}},
                 5000);
}

TEST(CheckNumbers, Passkey) {
  const Statistic depth = of_sequences("depth", [](const Example& example) {
    const std::string text(example.tokens.begin(), example.tokens.end());
    return number(text.size() - 5 - text.find(text.substr(text.size() - 8, 3)));
  });
  const Statistic last_statement = guess("the last statement", [](const Example& example, std::size_t t) {
    const auto close = std::find(example.tokens.rbegin(), example.tokens.rend(), ']');
    return *(close + static_cast<std::ptrdiff_t>(example.tokens.size() - 1 - t));
  });
  const Settings two{{"statements", "2"}}, one{{"statements", "1"}};
  expect_numbers("passkey", {tokens_fed, scored, depth, last_statement},
                 {{two, "train", {128, 5, 67.5, 0.55}},
                  {two, "ood-long", {256, 5, 131.5, 0.55}},
                  {two, "ood-decoys", {128, 5, 67.5, 0.325}},
                  {one, "in-distribution", {128, 5, 67.5, 1}},
                  {two, "ood-far", {512, 5, 259.5, 0.55}}});
}

TEST(CheckNumbers, LastX) {
  constexpr std::int32_t colours = 8;
  // The number of x of each colour.
  const auto counts = [](const Example& example) {
    std::array<double, colours> all{};
    for (const std::int32_t token : example.tokens) {
      if (token < colours) ++all[static_cast<std::size_t>(token)];
    }
    return all;
  };
  const Statistic x = of_sequences("number of x", [counts](const Example& example) {
    const auto all = counts(example);
    return std::accumulate(all.begin(), all.end(), 0.0);
  });
  const Statistic last_colour = guess(
      "the colour before ?", [](const Example& example, std::size_t t) { return example.tokens[t - 1] % colours; });
  const Statistic commonest = of_sequences("the commonest colour", [counts](const Example& example) {
    const auto all = counts(example);
    const double most = *std::ranges::max_element(all);
    if (all[static_cast<std::size_t>(example.targets.back())] < most) return 0.0;
    return 1 / number(std::ranges::count(all, most));
  });
  const Statistic random = of_sequences("the colour of a random x", [counts, x](const Example& example) {
    return counts(example)[static_cast<std::size_t>(example.targets.back())] / x.of(example).sum;
  });
  const Statistic trained = of_sequences(
      "positions trained", [](const Example& example) { return number(std::ranges::count(example.loss_mask, 1)) - 1; });
  expect_numbers("last-x", {x, last_colour, answer(0), commonest, random, trained},
                 {{{}, "in-distribution", {28.25, 0.1797, 0.125, {0.228, 0.02}, {0.156, 0.01}, {62.0, 0.2}}},
                  {{}, "ood-far", {20.25, 0.125, 0.125, {0.250, 0.02}, {0.171, 0.01}, {62.0, 0.2}}},
                  {{}, "ood-farther", {10.25, 0.125, 0.125, {0.309, 0.02}, {0.229, 0.01}, {62.0, 0.2}}},
                  {{}, "ood-sparse", {6.45, 0.1797, 0.125, {0.361, 0.02}, {0.283, 0.01}, {54.1, 0.5}}},
                  {{}, "ood-dense", {50.05, 0.1797, 0.125, {0.201, 0.02}, {0.143, 0.01}, {62.9, 0.2}}}},
                 5000);
}

TEST(CheckNumbers, LastSentence) {
  constexpr std::int32_t full_stop = 18, first_count = 20;
  // A guess: how often the name in question is in `count` sentences, from the last but `skipped` backwards.
  const auto in_sentences = [](std::size_t skipped, std::size_t count) {
    return guess(formatted("{} sentences before the last {}", count, skipped),
                 [=](const Example& example, std::size_t t) {
                   std::int32_t names = 0;
                   std::size_t stops = 0;
                   for (std::size_t at = t - 1; at-- > 0;) {
                     stops += example.tokens[at] == full_stop;
                     if (stops > skipped + count) break;
                     names += stops > skipped && example.tokens[at] == example.tokens[t];
                   }
                   return first_count + names;
                 });
  };
  // A guess: how often it is in the last `width` tokens before the question.
  const auto in_window = [](std::size_t width) {
    return guess(formatted("the last {} tokens", width), [=](const Example& example, std::size_t t) {
      const auto question = example.tokens.begin() + static_cast<std::ptrdiff_t>(t) - 1;
      const auto names =
          std::count(question - static_cast<std::ptrdiff_t>(std::min(width, t - 1)), question, example.tokens[t]);
      return first_count + static_cast<std::int32_t>(names);
    });
  };
  const Statistic mean = of_sequences(
      "mean answer", [](const Example& example) { return static_cast<double>(example.targets.back() - first_count); });
  std::vector<Statistic> statistics{tokens_fed, mean, in_sentences(0, 100), in_sentences(1, 1)};
  for (std::int32_t n = 0; n < 8; ++n) statistics.push_back(answer(first_count + n));
  const auto numbers = [](double tokens, const Number& whole, const Number& before,
                          const std::vector<double>& answers) {
    std::vector<Number> all{tokens, 2.8, whole, before};
    for (const double share : answers) all.emplace_back(share, 0.012);
    return all;
  };
  const std::vector<double> usual{0.0815, 0.188, 0.214, 0.189, 0.147, 0.097, 0.052, 0.022},
      long_sentences{0.097, 0.189, 0.208, 0.182, 0.138, 0.091, 0.052, 0.026};
  expect_numbers("last-sentence", statistics,
                 {{{}, "train", numbers(34, {0.020, 0.01}, {0.152, 0.025}, usual)},
                  {{}, "ood-more", numbers(78, {0, 0.01}, {0.155, 0.025}, usual)},
                  {{}, "ood-long", numbers(47, {0.032, 0.01}, {0.157, 0.025}, long_sentences)}},
                 5000);
  expect_numbers("last-sentence", {in_window(9)}, {{{}, "train", {{0.432, 0.035}}}});
  expect_numbers("last-sentence", {in_window(8)}, {{{}, "ood-more", {{0.431, 0.035}}}});
  expect_numbers("last-sentence", {in_window(15)}, {{{}, "ood-long", {{0.447, 0.035}}}});
  expect_numbers("last-sentence", {in_sentences(0, 1)}, {{{{"back", "1"}}, "train", {{0.152, 0.025}}}});
}

TEST(CheckNumbers, SelectiveCopy) {
  expect_numbers("selective-copy", {answer(0), answer(14)}, {{{}, "train", {1.0 / 15, 1.0 / 15}}}, 200);
}

// The numbers of the groups' multiplication tables in the specification, from the task's answers: running products
// times next elements.
TEST(CheckNumbers, GroupsHaveTheirNumbers) {
  struct Group {
    const char* name;
    std::size_t order;
    std::size_t commuting;        // pairs
    std::array<int, 6> of_order;  // elements of order 1 to 6
    std::size_t squares;          // the sum of the numbers of all i i
    std::size_t last_two;         // the number of (m-1)(m-2)
  };
  for (const Group& group : {Group{"a5", 60, 60 * 5, {1, 15, 20, 0, 24, 0}, 1321, 24},
                             {"s5", 120, 120 * 7, {1, 25, 20, 30, 24, 20}, 5384, 24},
                             {"z60", 60, 60 * 60, {1, 1, 2, 2, 4, 2}, 1740, 57},
                             {"a4xz5", 60, 60 * 20, {1, 3, 8, 0, 4, 0}, 1220, 2},
                             {"s3", 6, 18, {1, 3, 2, 0, 0, 0}, 7, 2}}) {
    SCOPED_TRACE(group.name);
    const std::size_t m = group.order;
    const auto task = make_task("group-word", {{"group", group.name}, {"length", "4000"}});
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> products;
    for (std::int64_t index = 0; products.size() < m * m && index < 100; ++index) {
      const Example example = task->example("train", index);
      std::size_t before = 0;
      for (std::size_t t = 1; t < example.tokens.size(); ++t) {
        const auto next = static_cast<std::size_t>(example.tokens[t]),
                   product = static_cast<std::size_t>(example.targets[t]);
        EXPECT_EQ(products.try_emplace({before, next}, product).first->second, product);
        before = product;
      }
    }
    ASSERT_EQ(products.size(), m * m);
    std::size_t commuting = 0;
    std::size_t squares = 0;
    std::array<int, 6> of_order{};
    for (std::size_t a = 0; a < m; ++a) {
      for (std::size_t b = 0; b < m; ++b) commuting += products[{a, b}] == products[{b, a}];
      squares += products[{a, a}];
      std::size_t order = 1;
      for (std::size_t power = a; power != 0; power = products[{power, a}]) ++order;
      if (order <= 6) ++of_order[order - 1];
    }
    EXPECT_EQ(commuting, group.commuting);
    EXPECT_EQ(of_order, group.of_order);
    EXPECT_EQ(squares, group.squares);
    EXPECT_EQ(products[std::pair(m - 1, m - 2)], group.last_two);
  }
}

}  // namespace tally::check_numbers_test
