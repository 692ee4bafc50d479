// Scores of a split do not depend on its batches; errors are broken down by the task's key; the uncertainty of a text's
// loss from its parts.
#include "tasks/evaluation/evaluate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tasks/evaluation/generate.hpp"
#include "tests/core/io_files.hpp"
#include "tests/error_of.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::evaluate_test {

using testing::error_of;

TEST(Evaluate, PartsOfABatchGiveWhatItGives) {
  RunConfig config = testing::with(RunConfig::make("even-pairs", "alibi"),
                                   "task.max-length=4 model.width=8 model.heads=2 model.layers=1");
  const auto task = config.make_task();
  const auto model = config.make_model(*task);
  const std::string& split = task->splits().at(1).name;
  const Batch batch = collate(examples_of(*task, split, 0, 7));
  Evaluation whole = evaluation_of(*task, split), found = evaluation_of(*task, split);
  evaluate_batch(*model, batch, whole);
  const std::vector<Batch> parts = batch.parts(3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts.back().tokens.size(0), 1);
  for (const Batch& part : parts) evaluate_batch(*model, part, found);
  EXPECT_NEAR(found.loss, whole.loss, 1e-6);
  EXPECT_FALSE(whole.by.empty());
  whole.loss = found.loss;
  EXPECT_EQ(write_json(evaluation_json(1, found)), write_json(evaluation_json(1, whole)));
  EXPECT_EQ(batch.parts(0).size(), 1U);
}

// A batch without counted tokens has no loss to compute.
TEST(Evaluate, ABatchWithNothingThatCountsChangesNoLoss) {
  RunConfig config = RunConfig::make("flip-flop", "alibi", "quick");
  config.set("task.length", "16");
  const auto task = config.make_task();
  const auto model = config.make_model(*task);
  Batch batch = collate(examples_of(*task, "ood-dense", 0, 2));
  Evaluation found = evaluation_of(*task, "ood-dense");
  evaluate_batch(*model, batch, found);
  const double loss = found.loss;
  batch.loss_mask.fill(0);
  evaluate_batch(*model, batch, found);
  EXPECT_EQ(found.loss, loss);
  EXPECT_EQ(found.sequences, 4);
}

// Six tokens of two keys in three sequences, one of them without the second key.
TEST(Evaluate, BreaksErrorsDownByKey) {
  Evaluation e;
  e.breakdown = "gap";
  add_sequence(e, {{true, 3}, {false, 3}, {false, 5}});
  add_sequence(e, {{false, 3}});
  add_sequence(e, {{true, 5}, {true, 3}});
  add_sequence(e, {});
  EXPECT_EQ(e.scored, 6);
  EXPECT_EQ(e.wrong, 3);
  EXPECT_EQ(e.sequences, 3);
  EXPECT_EQ(e.wrong_sequences, 2);
  ASSERT_EQ(e.by.size(), 2U);
  EXPECT_DOUBLE_EQ(e.mean_token_error(), 0.5);
  EXPECT_DOUBLE_EQ(e.mean_sequence_error(), (2.0 / 3 + 1.0 / 2) / 2);

  const JsonValue json = evaluation_json(7, e);
  EXPECT_EQ(write_json(json.at("by")),
            R"({"name":"gap","mean_token_error":0.5,"mean_sequence_error":0.5833333333333333,"keys":[3,5],)"
            R"("wrong":[2,1],"scored":[4,2],"wrong_sequences":[2,1],"sequences":[3,2]})");
  EXPECT_EQ(evaluation_json(7, evaluation_from_json(json)), json);
  JsonValue damaged = json;
  JsonValue by = json.at("by");
  damaged.set("by", by.set("wrong", JsonValue(JsonValue::Array{1})));
  EXPECT_THROW(evaluation_from_json(damaged), Error);
  damaged = json;
  damaged.set("wrong", e.scored + 1);
  EXPECT_EQ(error_of([&] { evaluation_from_json(damaged); }), "[evaluation] 7 wrong tokens of 6");
  damaged = json;
  damaged.set("by", by.set("wrong", JsonValue(JsonValue::Array{2, -1})));
  EXPECT_EQ(error_of([&] { evaluation_from_json(damaged); }), "[evaluation] -1 wrong tokens of 2 of the gap 5");
}

// Keys stay with their sequences in batches of any size, next to shorter sequences, and in generated answers.
TEST(Evaluate, CountsEachKeyOnceForAnyBatch) {
  RunConfig config = testing::configured("string-map", "alibi", "task.max-length=6 model.width=8 model.layers=1");
  const auto task = config.make_task();
  const auto model = config.make_model(*task);
  const Evaluation whole = evaluate(*model, *task, "in-distribution", 40, 40);
  EXPECT_EQ(whole.breakdown, "length");
  for (const std::int64_t batch : {1, 7}) {
    const Evaluation found = evaluate(*model, *task, "in-distribution", 40, batch);
    // Sequences have one to six outputs, so a mean over batches would weight them differently.
    EXPECT_NEAR(found.loss, whole.loss, 1e-6) << batch;
    EXPECT_EQ(evaluation_json(1, found).at("by"), evaluation_json(1, whole).at("by")) << batch;
  }
  ErrorCounts sum;
  for (const auto& [length, counts] : whole.by) {
    EXPECT_TRUE(1 <= length && length <= 6) << length;
    EXPECT_EQ(counts.scored, length * counts.sequences);
    sum.scored += counts.scored;
    sum.wrong += counts.wrong;
    sum.sequences += counts.sequences;
    sum.wrong_sequences += counts.wrong_sequences;
  }
  EXPECT_EQ(sum.scored, whole.scored);
  EXPECT_EQ(sum.wrong, whole.wrong);
  EXPECT_EQ(sum.sequences, 40);
  EXPECT_EQ(sum.wrong_sequences, whole.wrong_sequences);
  const Evaluation generated = evaluate_generated(*model, *task, "in-distribution", 40, 7);
  EXPECT_EQ(generated.by.size(), whole.by.size());
  EXPECT_EQ(generated.by.at(6).scored, whole.by.at(6).scored);
}

constexpr std::int32_t end_of_text = 7;

// Documents of equal length; each of their tokens costs the document's number in nats.
LossBlocks count(std::int64_t documents, std::int64_t tokens_each) {
  LossBlockCounter counter(end_of_text);
  for (std::int64_t d = 0; d < documents; ++d) {
    for (std::int64_t t = 0; t < tokens_each; ++t) {
      counter.add(t + 1 == tokens_each ? end_of_text : 1, static_cast<double>(d));
    }
  }
  return counter.blocks();
}

TEST(LossBlocks, AreDocumentsWithTheirEnds) {
  const LossBlocks blocks = count(20, 3);
  ASSERT_EQ(blocks.tokens, std::vector<std::int64_t>(20, 3));
  EXPECT_EQ(blocks.nats[0], 0);
  EXPECT_EQ(blocks.nats[19], 57);
  EXPECT_EQ(blocks.mean(), 9.5);
}

TEST(LossBlocks, OfFewDocumentsAreStretches) {
  const LossBlocks blocks = count(2, 10'450);
  EXPECT_EQ(blocks.tokens, (std::vector<std::int64_t>{10'000, 10'000, 900}));
  EXPECT_EQ(blocks.nats, (std::vector<double>{0, 9'550, 900}));
  EXPECT_EQ(count(19, 1100).tokens, std::vector<std::int64_t>(19, 1100)) << "those would be fewer still";
}

TEST(LossBlocks, OfManyDocumentsNeighboursAreJoined) {
  EXPECT_EQ(count(1000, 2).nats.size(), 1000u);
  const LossBlocks blocks = count(2001, 2);
  ASSERT_EQ(blocks.nats.size(), 501u);
  EXPECT_EQ(blocks.tokens.front(), 8);
  EXPECT_EQ(blocks.nats.front(), 2 * (0 + 1 + 2 + 3));
  EXPECT_EQ(blocks.tokens.back(), 2);
}

// For equal parts it is the standard error of a mean. For unequal parts, Python gives:
//   n=[2., 4, 9]; t=[1, 4, 5]; m=sum(n)/sum(t); (1.5*sum((a-m*b)**2 for a,b in zip(n,t)))**.5/sum(t)
TEST(LossBlocks, StandardError) {
  EXPECT_NEAR(*standard_error({{2, 4, 9}, {1, 1, 1}}), std::sqrt((9 + 1 + 16) / 2.0 / 3), 1e-15);
  EXPECT_NEAR(*standard_error({{2, 4, 9}, {1, 4, 5}}), 0.3122498999199199, 1e-15);
  EXPECT_FALSE(standard_error({{2}, {1}}).has_value());
  EXPECT_FALSE(standard_error({}).has_value());
}

TEST(LossBlocks, PairedDifferenceIsThatOfTheParts) {
  const LossDifference same = paired_difference({{5, 1, 7}, {2, 2, 2}}, {{3, -1, 5}, {2, 2, 2}});
  EXPECT_EQ(same.mean, 1);
  EXPECT_EQ(same.error, 0) << "what both have in common does not count";
  const LossDifference some = paired_difference({{5, 1, 7}, {1, 1, 1}}, {{3, -1, 2}, {1, 1, 1}});
  EXPECT_NEAR(some.mean, 3, 1e-15);
  EXPECT_NEAR(some.error, 1, 1e-15);
  EXPECT_ERROR(paired_difference({{1, 2}, {1, 1}}, {{1, 2}, {1, 2}}), "not evaluated on the same tokens");
  EXPECT_ERROR(paired_difference({{1}, {1}}, {{1}, {1}}), "at least two");
}

}  // namespace tally::evaluate_test
