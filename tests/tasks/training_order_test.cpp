// The order in which a fixed training set is read.
#include <gtest/gtest.h>

#include <numeric>

#include "tasks/data/batch.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::training_order_test {

using Indices = std::vector<std::int64_t>;

Split split_of(std::int64_t count) { return {"train", "", count, 1}; }

Indices epoch_of(TrainingOrder& order, std::int64_t first_step, std::int64_t steps) {
  Indices all;
  for (std::int64_t step = first_step; step < first_step + steps; ++step) {
    for (const std::int64_t index : order.indices(step)) all.push_back(index);
  }
  return all;
}

TEST(TrainingOrder, EveryEpochHasEachSequenceOnceInAnOrderOfItsOwn) {
  constexpr std::int64_t count = 10, steps = 3;  // batches of 4, 4 and 2
  TrainingOrder order(split_of(count), 4, 1);
  std::vector<Indices> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    epochs.push_back(epoch_of(order, 1 + epoch * steps, steps));
    Indices sorted = epochs.back();
    std::sort(sorted.begin(), sorted.end());
    Indices expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(sorted, expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
}

TEST(TrainingOrder, IsAPureFunctionOfSeedAndStep) {
  TrainingOrder order(split_of(10), 4, 1), other(split_of(10), 4, 2);
  const Indices all = epoch_of(order, 1, 9);
  for (const std::int64_t step : {8, 2, 5}) {
    TrainingOrder resumed(split_of(10), 4, 1);
    EXPECT_EQ(resumed.indices(step), order.indices(step)) << step;
  }
  EXPECT_NE(epoch_of(other, 1, 9), all);
}

// Including its own place: a shuffle that draws from one place too few would move every sequence.
TEST(TrainingOrder, EverySequenceIsEquallyLikelyAtEveryPlace) {
  constexpr std::int64_t count = 4, epochs = 6000;
  TrainingOrder order(split_of(count), count, 1);
  std::vector<double> found(count * count);
  for (std::int64_t step = 1; step <= epochs; ++step) {
    const Indices indices = order.indices(step);
    for (std::int64_t turn = 0; turn < count; ++turn) {
      ++found[static_cast<std::size_t>(turn * count + indices[static_cast<std::size_t>(turn)])];
    }
  }
  for (std::size_t cell = 0; cell < found.size(); ++cell) {
    testing::expect_share(found[cell], epochs, 1.0 / count,
                          formatted("turn {}, sequence {}", cell / count, cell % count));
  }
}

}  // namespace tally::training_order_test
