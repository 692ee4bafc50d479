// Addition: sums, order of digits, check numbers, and the error rate of adding without carries.
#include <gtest/gtest.h>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::addition_test {

using testing::make_task;
using testing::Mean;
using testing::Settings;

// Numbers of a sequence, least significant digit first.
struct Sum {
  std::vector<std::int32_t> a, b, c;
};

Sum numbers_of(const Example& example, std::int32_t base, bool big) {
  Sum sum;
  std::vector<std::int32_t>* number = &sum.a;
  for (std::size_t t = 0; t + 1 < example.tokens.size(); ++t) {
    const std::int32_t token = example.tokens[t];
    if (token < base) {
      number->push_back(token);
    } else {
      EXPECT_EQ(token, number == &sum.a ? base : base + 1);
      number = number == &sum.a ? &sum.b : &sum.c;
    }
  }
  EXPECT_EQ(example.tokens.back(), base + 2);
  if (big) {
    for (auto* one : {&sum.a, &sum.b, &sum.c}) std::reverse(one->begin(), one->end());
  }
  return sum;
}

std::int64_t value_of(const std::vector<std::int32_t>& digits, std::int32_t base) {
  std::int64_t value = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) value = value * base + *digit;
  return value;
}

TEST(Addition, TheSumIsRight) {
  for (const char* order : {"big", "little"}) {
    for (const char* base : {"10", "2"}) {
      const auto task = make_task("addition", {{"order", order}, {"base", base}, {"max-digits", "7"}});
      const std::int32_t b = std::stoi(base);
      for (const Split& split : task->splits()) {
        testing::for_each_example(*task, split.name, 100, [&](const Example& example) {
          const Sum sum = numbers_of(example, b, std::string(order) == "big");
          ASSERT_EQ(value_of(sum.a, b) + value_of(sum.b, b), value_of(sum.c, b)) << task->text(example);
          for (const auto& number : {sum.a, sum.b, sum.c}) ASSERT_TRUE(number.size() == 1 || number.back() > 0);
          ASSERT_EQ(static_cast<std::size_t>(example.keys.back()), std::max(sum.a.size(), sum.b.size()));
          ASSERT_EQ(testing::scored_positions(example), static_cast<double>(sum.c.size() + 1));
          for (std::size_t t = 0; t + 1 < example.tokens.size(); ++t) {
            ASSERT_EQ(example.score_mask[t], t >= sum.a.size() + sum.b.size() + 1);
          }
        });
      }
    }
  }
}

TEST(Addition, CheckNumbers) {
  struct Row {
    Settings settings;
    const char* split;
    double tokens, tokens_tolerance, scored, scored_tolerance, carries, carries_tolerance, longer, longer_tolerance,
        right, right_tolerance, wrong;
  };
  const std::vector<Row> rows{
      {{}, "train", 17.88, 0.25, 6.89, 0.1, 1.63, 0.07, 0.088, 0.015, 0.226, 0.022, 0.249},
      {{}, "ood-long", 41.83, 0.25, 14.87, 0.1, 5.63, 0.11, 0.093, 0.015, 0.0016, 0.003, 0.385},
      {{{"equal", "true"}}, "train", 17.16, 0.35, 6.11, 0.12, 2.30, 0.09, 0.59, 0.026, 0.13, 0.018, 0.472},
      {{{"equal", "true"}, {"base", "2"}, {"max-digits", "20"}},
       "train",
       35.36,
       0.9,
       12.43,
       0.3,
       5.23,
       0.2,
       0.959,
       0.011,
       0.041,
       0.011,
       0.498}};
  for (const Row& row : rows) {
    Settings settings = row.settings;
    settings.insert(settings.end(), {{"order", "little"}, {"eval-count", "5000"}});
    const auto task = make_task("addition", settings);
    const std::int32_t base = static_cast<std::int32_t>(task->vocabulary().size()) - 3;
    Mean tokens, scored, carries, longer, right, wrong_tokens;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      const Sum sum = numbers_of(example, base, false);
      const std::size_t columns = std::max(sum.a.size(), sum.b.size());
      double carried = 0, wrong = 0;
      std::int32_t carry = 0;
      for (std::size_t i = 0; i < columns; ++i) {
        const std::int32_t column = (i < sum.a.size() ? sum.a[i] : 0) + (i < sum.b.size() ? sum.b[i] : 0);
        wrong += column % base != sum.c[i];
        carry = (column + carry) / base;
        carried += carry;
      }
      // Without the last digit, the end token takes its position, and the end's own position is empty.
      if (sum.c.size() > columns) wrong += 2;
      tokens.add(static_cast<double>(example.tokens.size()));
      scored.add(testing::scored_positions(example));
      carries.add(carried);
      longer.add(sum.c.size() > columns);
      right.add(wrong == 0);
      wrong_tokens.add(wrong, testing::scored_positions(example));
    });
    const std::string what = std::string(row.split) + " base " + std::to_string(base);
    tokens.expect_near(row.tokens, row.tokens_tolerance, what);
    scored.expect_near(row.scored, row.scored_tolerance, what);
    carries.expect_near(row.carries, row.carries_tolerance, what);
    longer.expect_near(row.longer, row.longer_tolerance, what);
    right.expect_near(row.right, row.right_tolerance, what);
    wrong_tokens.expect_near(row.wrong, 0.012, what);
  }
}

}  // namespace tally::addition_test
