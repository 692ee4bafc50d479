// Properties of every task in the registry, and look-up of tasks and symbols.
#include "tasks/data/task.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/tasks/make_task.hpp"

namespace tally::task_test {

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

TEST(Tasks, SettingsThatDoNotFitAreRefused) {
  struct Row {
    const char* task;
    testing::Settings settings;
    const char* message;
  };
  for (const Row& row :
       {Row{"flip-flop", {{"length", "7"}}, "[flip-flop] length must be even and at least 4, got 7"},
        {"counting",
         {{"min-operations", "9"}, {"max-operations", "8"}},
         "[counting] min-operations 9 is more than max-operations 8"},
        {"last-sentence",
         {{"back", "1"}, {"back-max", "2"}},
         "[last-sentence] back = 1 has no effect with back-max = 2: the question says which sentence"},
        {"last-x",
         {{"length", "40"}},
         "[last-x] farther-gap 55 does not fit before `?` into a length of 40: length - 2 at most"},
        {"last-x", {{"near-gap", "31"}}, "[last-x] near-gap, far-gap and farther-gap must rise, got 31, 31 and 55"},
        {"missing-duplicate", {{"max-length", "41"}}, "[missing-duplicate] max-length must be even, got 41"},
        {"mqar", {{"pairs", "8"}, {"length", "30"}}, "[mqar] train with 8 pairs needs a length of 32, got 30"},
        {"mqar",
         {{"pairs", "8"}, {"vocabulary", "16"}},
         "[mqar] train has 8 pairs, of 7 different keys: the vocabulary is too small"},
        {"mqar", {{"length", "65"}}, "[mqar] length must be even, got 65"},
        {"mqar-update",
         {{"vocabulary", "64"}, {"pairs", "8"}, {"updates", "9"}},
         "[mqar-update] train has 9 updates of 8 keys"},
        {"passkey", {{"length", "40"}}, "[passkey] ood-decoys with 4 statements needs a length of 44, got 40"}}) {
    EXPECT_EQ(error_of([&] { make_task(row.task, row.settings); }), row.message);
  }
}

TEST(Tasks, SequenceRngIsTheNamedStream) {
  Rng rng = sequence_rng(0x0123456789abcdef, "flip-flop", "train", 0xfedcba98);
  const RandomStream stream{0x0123456789abcdef, stream_of("flip-flop/train"), 0xfedcba98};
  for (std::uint64_t element = 0; element < 10; ++element) EXPECT_EQ(rng.bits(), stream.bits(element)) << element;
}

}  // namespace tally::task_test
