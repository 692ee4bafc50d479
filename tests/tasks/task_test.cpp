// Properties of every task in the registry, and look-up of tasks and symbols.
#include "tasks/data/task.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/tasks/make_task.hpp"

namespace tally {
namespace task_test {

using testing::contains;
using testing::error_of;
using testing::make_task;

TEST(Tasks, HaveNamesAndDescriptions) {
  std::set<std::string> names;
  for (const TaskEntry* entry : task_registry()) {
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_FALSE(entry->summary.empty()) << entry->name;
    EXPECT_FALSE(contains(entry->summary, "\n")) << entry->name;
    EXPECT_FALSE(entry->description.empty()) << entry->name;
    EXPECT_FALSE(entry->paper.empty()) << entry->name;
    EXPECT_EQ(&find_task(entry->name), entry);
  }
  for (const char* name : {"addition", "counting", "cycle-navigation", "even-pairs", "flip-flop", "group-word",
                           "last-sentence", "last-x", "missing-duplicate", "modular-arithmetic", "mqar", "mqar-update",
                           "n-back", "parity", "passkey", "selective-copy", "string-map"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST(Tasks, OptionsHaveHelpAndNamesOfTheirOwn) {
  for (const TaskEntry* entry : task_registry()) {
    std::set<std::string> names;
    for (const OptionInfo& info : list_options(*entry->make_options())) {
      EXPECT_TRUE(names.insert(info.name).second) << entry->name << " " << info.name;
      EXPECT_FALSE(info.help.empty()) << entry->name << " " << info.name;
    }
  }
}

TEST(Tasks, TrainComesFirstAndSymbolsAreUnique) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    const auto task = make_task(entry->name);
    ASSERT_FALSE(task->splits().empty());
    EXPECT_EQ(task->splits().front().name, "train");
    std::set<std::string> names;
    for (const Split& split : task->splits()) EXPECT_TRUE(names.insert(split.name).second) << split.name;
    const auto& vocabulary = task->vocabulary();
    EXPECT_EQ(std::set<std::string>(vocabulary.begin(), vocabulary.end()).size(), vocabulary.size());
  }
}

TEST(Tasks, SequencesAreWellFormedAndPure) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    SCOPED_TRACE(entry->name);
    testing::expect_well_formed(*make_task(entry->name), 5);
    testing::expect_pure(entry->name, {});
  }
}

TEST(Tasks, TrainingFollowsItsSeedEvaluationTheDataSeed) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    const auto base = make_task(entry->name, {}, 1, 2), other_seed = make_task(entry->name, {}, 3, 2),
               other_data = make_task(entry->name, {}, 1, 3);
    for (const Split& split : base->splits()) {
      const auto first = [&](const Task& task) {
        std::vector<std::string> texts;
        for (std::int64_t index = 0; index < 4; ++index) texts.push_back(testing::text_of(task, split.name, index));
        return texts;
      };
      const bool of_seed = split.count == 0;
      EXPECT_EQ(first(*base) == first(*other_seed), !of_seed) << entry->name << " " << split.name;
      EXPECT_EQ(first(*base) == first(*other_data), of_seed) << entry->name << " " << split.name;
    }
  }
}

TEST(Tasks, AnUnknownOneIsRefusedWithTheNearest) {
  EXPECT_TRUE(contains(error_of([] { find_task("flipflop"); }),
                       "[task] unknown task 'flipflop'; did you mean 'flip-flop'? Known are "));
  EXPECT_TRUE(contains(error_of([] { find_task("shakespeare"); }), "unknown task 'shakespeare'; known are "));
}

TEST(Tasks, NextTokenExampleShiftsByOne) {
  const Example example = next_token_example({7, 8, 9});
  EXPECT_EQ(example.tokens, (std::vector<std::int32_t>{7, 8, 9}));
  EXPECT_EQ(example.targets, (std::vector<std::int32_t>{8, 9, 0}));
  EXPECT_EQ(example.loss_mask, (std::vector<std::uint8_t>{0, 0, 0}));
  EXPECT_EQ(example.score_mask, (std::vector<std::uint8_t>{0, 0, 0}));
  EXPECT_TRUE(next_token_example({}).targets.empty());
}

TEST(Tasks, SequenceRngIsTheNamedStream) {
  Rng rng = sequence_rng(0x0123456789abcdef, "flip-flop", "train", 0xfedcba98);
  const RandomStream stream{0x0123456789abcdef, stream_of("flip-flop/train"), 0xfedcba98};
  for (std::uint64_t element = 0; element < 10; ++element) EXPECT_EQ(rng.bits(), stream.bits(element)) << element;
}

TEST(Tasks, SymbolsAreJoinedWithASeparator) {
  const std::vector<std::string> vocabulary{"a", "bc"};
  const std::vector<std::int32_t> tokens{1, 0, 1};
  EXPECT_EQ(join_symbols(vocabulary, tokens, " "), "bc a bc");
  EXPECT_EQ(join_symbols(vocabulary, tokens, ""), "bcabc");
  EXPECT_EQ(join_symbols(vocabulary, {}, " "), "");
  const std::vector<std::int32_t> negative{-1};
  EXPECT_THROW(join_symbols(vocabulary, negative, " "), Error);
}

}  // namespace task_test
}  // namespace tally
