// Tasks made by name, as in the runner, and checks that apply to every task.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tasks/data/task.hpp"
#include "tests/error_of.hpp"

namespace tally::testing {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline std::unique_ptr<Task> make_task(std::string_view name, const Settings& settings = {}, std::uint64_t seed = 1,
                                       std::uint64_t data_seed = 1) {
  const TaskEntry& entry = find_task(name);
  const std::unique_ptr<Options> options = entry.make_options();
  for (const auto& [option, value] : settings) set_option(*options, "task", option, value);
  return entry.make(*options, seed, data_seed);
}

inline bool same(const Example& a, const Example& b) {
  return a.tokens == b.tokens && a.targets == b.targets && a.loss_mask == b.loss_mask && a.score_mask == b.score_mask &&
         a.keys == b.keys;
}

inline std::string text_of(const Task& task, std::string_view split, std::int64_t index) {
  return task.text(task.example(split, index));
}

// `count` out of `trials` independent ones of probability p, within four standard errors.
inline void expect_share(double count, double trials, double p, std::string_view what) {
  EXPECT_NEAR(count / trials, p, 4 * std::sqrt(p * (1 - p) / trials)) << what;
}

// Sequences do not depend on the order of splits or indices, nor on the task object, if the seeds are equal.
inline void expect_pure(std::string_view name, const Settings& settings) {
  const auto task = make_task(name, settings, 5, 6);
  const auto again = make_task(name, settings, 5, 6);
  std::vector<Example> forward;
  for (const Split& split : task->splits()) {
    for (std::int64_t index = 0; index < 5; ++index) forward.push_back(task->example(split.name, index));
  }
  const auto& splits = again->splits();
  std::size_t at = forward.size();
  for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
    for (std::int64_t index = 4; index >= 0; --index) {
      EXPECT_TRUE(same(again->example(split->name, index), forward[--at])) << split->name << " " << index;
    }
  }
}

// Each sequence has rows of one length, within its split's limit. Ids are in the vocabulary, masks are 0 or 1, scored
// positions are trained, and encode() turns text back to tokens.
inline void expect_well_formed(const Task& task, std::int64_t sequences) {
  const auto symbols = static_cast<std::int32_t>(task.vocabulary().size());
  for (const Split& split : task.splits()) {
    for (std::int64_t index = 0; index < sequences; ++index) {
      const Example example = task.example(split.name, index);
      const std::size_t length = example.tokens.size();
      ASSERT_GT(length, 0u);
      ASSERT_LE(static_cast<std::int64_t>(length), split.length);
      ASSERT_EQ(example.targets.size(), length);
      ASSERT_EQ(example.loss_mask.size(), length);
      ASSERT_EQ(example.score_mask.size(), length);
      ASSERT_EQ(example.keys.size(), task.breakdown().empty() ? 0 : length);
      std::size_t scored = 0;
      for (std::size_t t = 0; t < length; ++t) {
        ASSERT_TRUE(0 <= example.tokens[t] && example.tokens[t] < symbols);
        ASSERT_TRUE(0 <= example.targets[t] && example.targets[t] < symbols);
        ASSERT_LE(example.loss_mask[t], 1);
        ASSERT_LE(example.score_mask[t], example.loss_mask[t]);
        scored += example.score_mask[t];
      }
      ASSERT_GT(scored, 0u);
      const std::vector<std::int32_t> encoded = task.encode(task.text(example));
      ASSERT_GE(encoded.size(), length);
      ASSERT_TRUE(std::equal(example.tokens.begin(), example.tokens.end(), encoded.begin()));
    }
  }
}

}  // namespace tally::testing
