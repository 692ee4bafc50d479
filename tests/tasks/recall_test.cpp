// Recall: mqar, mqar-update and n-back: distributions, and the error rates of baselines.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/tasks/check_numbers.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::recall_test {

using testing::make_task;
using testing::Mean;
using testing::Settings;

Settings mqar(const char* vocabulary, const char* pairs, const char* length) {
  return {{"vocabulary", vocabulary}, {"pairs", pairs}, {"length", length}, {"eval-count", "20000"}};
}

TEST(Mqar, EachKeyOfTheContextIsAskedOnce) {
  for (const char* filler : {"zero", "random"}) {
    Settings settings = mqar("256", "8", "64");
    settings.emplace_back("filler", filler);
    const auto task = make_task("mqar", settings);
    for (const Split& split : task->splits()) {
      const std::size_t pairs = split.name == "ood-dense" ? 16 : 8;
      testing::for_each_example(*task, split.name, 30, [&](const Example& example) {
        ASSERT_EQ(example.tokens.size(), split.name == "ood-long" ? 128u : 64u);
        std::map<std::int32_t, std::int32_t> values;
        std::set<std::int32_t> different;
        for (std::size_t t = 0; t < 2 * pairs; t += 2) {
          values[example.tokens[t]] = example.tokens[t + 1];
          different.insert(example.tokens[t + 1]);
          ASSERT_TRUE(1 <= example.tokens[t] && example.tokens[t] < 128);
          ASSERT_TRUE(128 <= example.tokens[t + 1] && example.tokens[t + 1] < 256);
        }
        ASSERT_EQ(values.size(), pairs);
        ASSERT_EQ(different.size(), pairs);
        std::set<std::int32_t> asked;
        for (std::size_t t = 0; t < example.tokens.size(); ++t) {
          ASSERT_EQ(example.loss_mask[t], example.score_mask[t]);
          if (example.score_mask[t] != 0) {
            ASSERT_EQ(t % 2, 0u);
            ASSERT_GE(t, 2 * pairs);
            ASSERT_EQ(example.targets[t], values.at(example.tokens[t]));
            ASSERT_TRUE(asked.insert(example.tokens[t]).second);
          } else if (t >= 2 * pairs && std::string(filler) == "zero") {
            ASSERT_EQ(example.tokens[t], 0);
          }
        }
        ASSERT_EQ(asked.size(), pairs);
      });
    }
  }
}

TEST(Mqar, CheckNumbers) {
  struct Row {
    const char *vocabulary, *pairs, *length, *split;
    double scored, distance, distance_tolerance, asks_first, slot0, slot0_tolerance, last, last_tolerance;
  };
  for (const Row& row : {Row{"256", "8", "64", "train", 8, 23.83, 0.2, 0.269, 0.9596, 0.011, 53.0, 0.4},
                         {"8192", "4", "64", "train", 4, 19.35, 0.35, 0.330, 0.730, 0.022, 40.3, 0.7},
                         {"8192", "16", "256", "train", 16, 73.5, 0.6, 0.193, 0.9845, 0.006, 216.6, 1.5},
                         {"256", "8", "64", "ood-dense", 16, 32, 0, 0.294, 1, 0, 62, 0},
                         {"256", "8", "64", "ood-long", 8, 37.29, 0.45, 0.236, 0.895, 0.016, 95.9, 1.1}}) {
    const auto task = make_task("mqar", mqar(row.vocabulary, row.pairs, row.length));
    const std::string what = std::string("V ") + row.vocabulary + " K " + row.pairs + " " + row.split;
    Mean distance, asks_first, slot0, last;
    testing::for_each_example(*task, row.split, 3000, [&](const Example& example) {
      ASSERT_EQ(testing::scored_positions(example), row.scored);
      std::map<std::int32_t, std::size_t> key_at;
      const auto context = static_cast<std::size_t>(2 * row.scored);
      for (std::size_t t = 0; t < context; t += 2) key_at[example.tokens[t]] = t;
      double sum = 0;
      std::size_t first = 0, latest = 0;
      for (std::size_t t = context; t < example.tokens.size(); t += 2) {
        if (example.score_mask[t] == 0) continue;
        if (first == 0) first = t;
        latest = t;
        sum += static_cast<double>(t - key_at.at(example.tokens[t]));
      }
      distance.add(sum / row.scored);
      asks_first.add(example.tokens[first] == example.tokens[0]);
      slot0.add(example.score_mask[context]);
      last.add(static_cast<double>(latest));
    });
    distance.expect_near(row.distance, row.distance_tolerance, what);
    asks_first.expect_near(row.asks_first, 0.023, what);
    slot0.expect_near(row.slot0, row.slot0_tolerance, what);
    last.expect_near(row.last, row.last_tolerance, what);
  }
}

TEST(MqarUpdate, TheLatestValueIsAsked) {
  struct Row {
    const char *vocabulary, *pairs, *split;
    std::size_t updates;
    double first_right, distance, distance_tolerance, shared;
  };
  for (const Row& row : {Row{"256", "8", "train", 4, 0.5, 23.98, 0.2, 0.046},
                         {"8192", "4", "train", 4, 0, 17.6, 0.4, 0.0008},
                         {"256", "8", "ood-all", 8, 0, 20.04, 0.15, 0.053}}) {
    const auto task =
        make_task("mqar-update",
                  {{"vocabulary", row.vocabulary}, {"pairs", row.pairs}, {"length", "64"}, {"eval-count", "5000"}});
    const auto pairs = static_cast<std::size_t>(std::stoi(row.pairs));
    const std::string what = std::string("V ") + row.vocabulary + " " + row.split;
    Mean first_right, distance, shared;
    testing::for_each_example(*task, row.split, 5000, [&](const Example& example) {
      ASSERT_EQ(example.tokens.size(), 64u);
      std::map<std::int32_t, std::int32_t> first, latest;
      std::map<std::int32_t, std::size_t> key_at;
      const std::size_t context = 2 * (pairs + row.updates);
      for (std::size_t t = 0; t < context; t += 2) {
        const std::int32_t key = example.tokens[t], value = example.tokens[t + 1];
        ASSERT_EQ(t < 2 * pairs, first.insert({key, value}).second);
        if (t >= 2 * pairs) {
          ASSERT_NE(value, first.at(key));
          ASSERT_LT(key_at.at(key), 2 * pairs) << "updated twice";
        }
        latest[key] = value;
        key_at[key] = t;
      }
      double right = 0, sum = 0, same = 0;
      std::size_t asked = 0;
      for (std::size_t t = context; t < example.tokens.size(); ++t) {
        if (example.score_mask[t] == 0) continue;
        const std::int32_t key = example.tokens[t];
        ++asked;
        ASSERT_EQ(example.targets[t], latest.at(key));
        right += example.targets[t] == first.at(key);
        sum += static_cast<double>(t - key_at.at(key));
        for (const auto& [other, value] : latest) {
          if (other != key && value == latest.at(key)) {
            ++same;
            break;
          }
        }
      }
      ASSERT_EQ(asked, pairs);
      const auto n = static_cast<double>(pairs);
      first_right.add(right / n);
      distance.add(sum / n);
      shared.add(same / n);
    });
    first_right.expect_exact(row.first_right, what);
    distance.expect_near(row.distance, row.distance_tolerance, what);
    shared.expect_near(row.shared, 0.007, what);
  }
}

Settings n_back(const char* keys, const char* values, const char* pairs, const char* n) {
  return {{"keys", keys}, {"values", values}, {"pairs", pairs}, {"n", n}};
}

TEST(NBack, EachKeyAsksForItsNthLastValue) {
  for (const std::size_t n : {1u, 3u}) {
    const auto task = make_task("n-back", n_back("6", "8", "40", std::to_string(n).c_str()));
    for (const Split& split : task->splits()) {
      testing::for_each_example(*task, split.name, 20, [&](const Example& example) {
        ASSERT_EQ(example.tokens.size(), split.name == "ood-long" ? 160u : 80u);
        std::map<std::int32_t, std::vector<std::int32_t>> values;
        for (std::size_t t = 0; t < example.tokens.size(); t += 2) {
          std::vector<std::int32_t>& earlier = values[example.tokens[t]];
          ASSERT_LT(example.tokens[t], split.name == "ood-dense" ? 3 : 6);
          ASSERT_EQ(example.score_mask[t], earlier.size() >= n);
          ASSERT_EQ(example.loss_mask[t], example.score_mask[t]);
          ASSERT_EQ(example.score_mask[t + 1], 0);
          if (earlier.size() >= n) {
            ASSERT_EQ(example.targets[t], earlier[earlier.size() - n]);
          }
          earlier.push_back(example.tokens[t + 1]);
        }
      });
    }
  }
}

TEST(NBack, CheckNumbers) {
  struct Row {
    const char *keys, *values, *pairs, *n;
    std::int64_t sequences;
    double scored, distance, distance_tolerance, latest_right;
  };
  for (const Row& row : {Row{"8", "8", "64", "1", 4000, 56.002, 14.01, 0.06, 1},
                         {"8", "8", "64", "2", 4000, 48.017, 27.38, 0.12, 0.125},
                         {"8", "8", "64", "3", 4000, 40.097, 39.87, 0.2, 0.125},
                         {"32", "32", "384", "2", 1000, 320.002, 115.6, 0.2, 1.0 / 32}}) {
    const auto task = make_task("n-back", n_back(row.keys, row.values, row.pairs, row.n));
    const std::string what = std::string("K ") + row.keys + " N " + row.n;
    const auto n = static_cast<std::size_t>(std::stoi(row.n));
    Mean scored, distance, latest_right;
    testing::for_each_example(*task, "train", row.sequences, [&](const Example& example) {
      std::map<std::int32_t, std::vector<std::size_t>> times;
      double back = 0;
      for (std::size_t t = 0; t < example.tokens.size(); t += 2) {
        std::vector<std::size_t>& earlier = times[example.tokens[t]];
        if (example.score_mask[t] != 0) {
          back += static_cast<double>(t - earlier[earlier.size() - n]);
          latest_right.add(example.tokens[earlier.back() + 1] == example.targets[t]);
        }
        earlier.push_back(t);
      }
      distance.add(back, testing::scored_positions(example));
      scored.add(testing::scored_positions(example));
    });
    scored.expect_exact(row.scored, what);
    latest_right.expect_exact(row.latest_right, what);
    distance.expect_near(row.distance, row.distance_tolerance, what);
  }
}

}  // namespace tally::recall_test
