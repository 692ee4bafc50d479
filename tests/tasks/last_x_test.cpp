// Last x: the distribution by position, and the error rates of baselines.
#include <gtest/gtest.h>

#include <array>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::last_x_test {

using testing::make_task;
using testing::Mean;

constexpr std::int32_t colours = 8;
constexpr std::int32_t question = 2 * colours;

TEST(LastX, TheAnswerIsTheLastX) {
  for (const char* loss : {"all", "last"}) {
    const auto task = make_task("last-x", {{"loss", loss}});
    for (const Split& split : task->splits()) {
      testing::for_each_example(*task, split.name, 30, [&](const Example& example) {
        ASSERT_EQ(example.tokens.size(), 64u);
        ASSERT_EQ(example.tokens.back(), question);
        std::int32_t last = -1;
        std::int64_t at = 0;
        for (std::size_t t = 0; t < 64; ++t) {
          if (example.tokens[t] < colours) {
            last = example.tokens[t];
            at = static_cast<std::int64_t>(t);
          }
          const bool is_last = t == 63;
          ASSERT_EQ(example.score_mask[t], is_last);
          ASSERT_EQ(example.loss_mask[t], is_last || (last >= 0 && std::string(loss) == "all"));
          if (example.loss_mask[t] != 0) {
            ASSERT_EQ(example.targets[t], last);
          }
        }
        ASSERT_EQ(example.keys.back(), 62 - at);
      });
    }
  }
}

TEST(LastX, CheckNumbers) {
  struct Row {
    const char* split;
    double x, last_symbol, commonest, random, trained, tolerance;
  };
  const auto task = make_task("last-x", {{"eval-count", "5000"}});
  for (const Row& row : {Row{"in-distribution", 28.25, 0.1797, 0.228, 0.156, 62.0, 0.2},
                         {"ood-far", 20.25, 0.125, 0.250, 0.171, 62.0, 0.2},
                         {"ood-farther", 10.25, 0.125, 0.309, 0.229, 62.0, 0.2},
                         {"ood-sparse", 6.45, 0.1797, 0.361, 0.283, 54.1, 0.5},
                         {"ood-dense", 50.05, 0.1797, 0.201, 0.143, 62.9, 0.2}}) {
    Mean x, last_symbol, commonest, random, trained;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      std::array<double, colours> of{};
      double all = 0, in_loss = 0;
      for (std::size_t t = 0; t + 1 < example.tokens.size(); ++t) {
        in_loss += example.loss_mask[t];
        if (example.tokens[t] >= colours) continue;
        ++of[static_cast<std::size_t>(example.tokens[t])];
        ++all;
      }
      const std::int32_t answer = example.targets.back();
      const double of_answer = of[static_cast<std::size_t>(answer)], most = *std::max_element(of.begin(), of.end());
      x.add(all);
      trained.add(in_loss);
      last_symbol.add(example.tokens[62] % colours == answer);
      commonest.add(of_answer == most ? 1.0 / static_cast<double>(std::count(of.begin(), of.end(), most)) : 0);
      random.add(of_answer / all);
    });
    x.expect_exact(row.x, row.split);
    last_symbol.expect_exact(row.last_symbol, row.split);
    commonest.expect_near(row.commonest, 0.02, row.split);
    random.expect_near(row.random, 0.01, row.split);
    trained.expect_near(row.trained, row.tolerance, row.split);
  }
}

}  // namespace tally::last_x_test
