// The task `text`: the contents of its windows, each target counted once, and the reported token counts.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "core/io/checksum.hpp"
#include "core/io/json.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/text/tokenizer_files.hpp"
#include "tests/core/io_files.hpp"
#include "tests/tasks/configured.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::text_test {

using testing::contains;
using testing::error_of;
using testing::make_task;

std::string sum_of(std::string_view bytes) { return checksum_text(crc32c(std::as_bytes(std::span(bytes)))); }

// A folder like those from `tally prepare`, with bytes. Token t of a split is t mod 200, except for the first, which
// ends an absent text.
class TextTask : public ::testing::Test {
 protected:
  static constexpr std::int64_t train_tokens = 103, validation_tokens = 45;

  TextTask() {
    const std::string tokenizer = tokenizer_json(byte_tokenizer());
    folder_.file("tokenizer.json", tokenizer);
    JsonValue splits = JsonValue::object();
    for (const auto& [name, size] : {std::pair{"train", train_tokens}, {"validation", validation_tokens}}) {
      std::string bytes;
      for (std::int64_t t = 0; t < size; ++t) {
        bytes += {static_cast<char>(token(t) % 256), static_cast<char>(token(t) / 256)};
      }
      folder_.file(std::string(name) + ".bin", bytes);
      splits.set(name, JsonValue::object({{"files", 1},
                                          {"documents", 1},
                                          {"bytes", size - 1},
                                          {"words", 1},
                                          {"tokens", size},
                                          {"text_checksum", "0"},
                                          {"token_checksum", sum_of(bytes)}}));
    }
    const JsonValue of =
        JsonValue::object({{"vocabulary", 257}, {"end_of_text", 256}, {"checksum", sum_of(tokenizer)}});
    folder_.file("manifest.json",
                 write_json(JsonValue::object({{"version", 1}, {"splits", std::move(splits)}, {"tokenizer", of}})));
  }

  static std::int32_t token(std::int64_t t) { return t == 0 ? 256 : static_cast<std::int32_t>(t % 200); }

  std::unique_ptr<Task> make(testing::Settings settings, std::uint64_t seed = 1) const {
    settings.emplace_back("data", folder_.path());
    return make_task("text", settings, seed);
  }

  // How often each token of the validation split is a counted target. Also checks the positions of all targets.
  static std::vector<int> counted(const Task& task) {
    std::vector<int> times(validation_tokens, 0);
    for (std::int64_t n = 0; n < task.split("validation").count; ++n) {
      const Example example = task.example("validation", n);
      EXPECT_EQ(example.loss_mask, example.score_mask);
      const std::int64_t first = example.tokens[0] == 256 ? 0 : example.tokens[0];
      for (std::size_t i = 0; i < example.tokens.size(); ++i) {
        const std::int64_t t = first + static_cast<std::int64_t>(i);
        EXPECT_EQ(example.tokens[i], token(t));
        EXPECT_EQ(example.targets[i], token(t + 1));
        if (example.loss_mask[i] != 0) ++times.at(static_cast<std::size_t>(t + 1));
      }
    }
    return times;
  }

  // Targets from `from` on count once, all others never.
  static std::vector<int> once_from(std::int64_t from) {
    std::vector<int> times(validation_tokens, 1);
    std::fill(times.begin(), times.begin() + from, 0);
    return times;
  }

  TemporaryFolder folder_;
};

TEST_F(TextTask, EvaluationCountsEachTargetOnce) {
  for (const char* length : {"7", "8", "11", "44"}) {
    SCOPED_TRACE(length);
    EXPECT_EQ(counted(*make({{"length", length}})), once_from(1));
    for (const char* stride : {"1", "3", "7"}) {
      SCOPED_TRACE(stride);
      EXPECT_EQ(counted(*make({{"length", length}, {"stride", stride}})), once_from(1));
      EXPECT_EQ(counted(*make({{"length", length}, {"stride", stride}, {"after", "12"}})), once_from(13));
    }
  }
}

TEST_F(TextTask, AWindowWithAStrideHasTheContextBeforeIt) {
  const auto task = make({{"length", "10"}, {"stride", "4"}});
  const Split& split = task->split("validation");
  EXPECT_EQ(split.count, 1 + (44 - 10 + 3) / 4);
  for (std::int64_t n = 0; n < split.count; ++n) {
    const Example example = task->example("validation", n);
    EXPECT_EQ(example.tokens.size(), 10u) << "every token but the first ten has at least six before it";
    const auto counts = std::accumulate(example.loss_mask.begin(), example.loss_mask.end(), 0);
    EXPECT_EQ(counts, n == 0 ? 10 : n + 1 < split.count ? 4 : 2) << n;
  }
  const auto later = make({{"length", "10"}, {"stride", "4"}, {"after", "12"}});
  const Example first = later->example("validation", 0);
  EXPECT_EQ(std::accumulate(first.loss_mask.begin(), first.loss_mask.end(), 0), 4) << "a stride of targets";
}

TEST_F(TextTask, AnEpochTakesEachWindowOnce) {
  const std::int64_t length = 10, windows = (train_tokens - length) / length;
  const auto task = make({{"length", "10"}}), again = make({{"length", "10"}}), other = make({{"length", "10"}}, 2);
  std::vector<std::vector<std::int64_t>> epochs;
  bool differs = false;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> firsts;
    std::vector<std::int64_t>& order = epochs.emplace_back();
    for (std::int64_t n = 0; n < windows; ++n) {
      const std::int64_t index = epoch * windows + n;
      const Example example = task->example("train", index);
      EXPECT_EQ(example.tokens, again->example("train", index).tokens);
      differs |= example.tokens != other->example("train", index).tokens;
      ASSERT_EQ(example.tokens.size(), 10u);
      const std::int64_t first = example.tokens[0] == 256 ? 0 : example.tokens[0];
      for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(example.targets[i], token(first + static_cast<std::int64_t>(i) + 1));
        EXPECT_EQ(example.loss_mask[i], 1);
      }
      firsts.insert(first % length);
      order.push_back(first);
    }
    EXPECT_EQ(firsts.size(), 1u) << "one offset";
    std::vector<std::int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t n = 1; n < sorted.size(); ++n) EXPECT_EQ(sorted[n] - sorted[n - 1], length);
  }
  EXPECT_TRUE(differs) << "the seed decides";
  EXPECT_NE(epochs[0], epochs[1]);
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 60; ++epoch) {
    std::int64_t first = train_tokens;
    for (std::int64_t n = 0; n < windows; ++n) {
      const std::int32_t begin = task->example("train", epoch * windows + n).tokens[0];
      first = std::min<std::int64_t>(first, begin == 256 ? 0 : begin);
    }
    offsets.insert(first);
  }
  EXPECT_EQ(offsets.size(), 10u);
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin(), 9);
}

TEST_F(TextTask, RandomPlacesAreDrawnAnewForEachSequence) {
  const testing::Settings settings{{"length", "10"}, {"order", "random"}};
  const auto task = make(settings), again = make(settings), other = make(settings, 2);
  EXPECT_EQ(task->epoch(), (train_tokens - 10) / 10);
  constexpr std::int64_t starts = train_tokens - 10, drawn = 200 * starts;
  std::vector<int> times(starts, 0);
  int same = 0;
  for (std::int64_t n = 0; n < drawn; ++n) {
    const Example example = task->example("train", n);
    const std::int64_t first = example.tokens[0] == 256 ? 0 : example.tokens[0];
    ++times.at(static_cast<std::size_t>(first));
    if (n < 100) {
      EXPECT_EQ(example.tokens, again->example("train", n).tokens);
      same += example.tokens == other->example("train", n).tokens;
    }
  }
  EXPECT_LT(same, 10) << "the seed decides";
  // 200 +- 14 each: five standard deviations.
  EXPECT_GT(std::ranges::min(times), 130);
  EXPECT_LT(std::ranges::max(times), 270);
}

TEST_F(TextTask, TellsWhatWasScored) {
  const auto task = make({{"length", "8"}});
  const std::optional<TextCounts> counts = task->text_counts("validation", 6);
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->context, 8);
  EXPECT_EQ(counts->stride, 8);
  EXPECT_EQ(counts->tokens, 44);
  EXPECT_EQ(counts->bytes, 44) << "the end of text, which stands for none, is no target";
  EXPECT_EQ(counts->documents, 0);
  EXPECT_EQ(counts->words, 1) << "bytes 34 and on are no white space";
  EXPECT_EQ(task->text_counts("validation", 2)->tokens, 16);
  // With adjacent windows, the last one covers the rest: no target has more context than the 8 tokens scored with it.
  for (std::int64_t n = 0; n < 6; ++n) {
    const Example example = task->example("validation", n);
    EXPECT_EQ(example.tokens.size(), n < 5 ? 8u : 4u);
    EXPECT_EQ(std::ranges::count(example.loss_mask, 1), std::ssize(example.tokens));
  }

  Evaluation e;
  e.split = "validation";
  e.loss = std::log(4.0);
  e.text = TextCounts{.context = 8,
                      .stride = 8,
                      .tokens = 10,
                      .words = 5,
                      .bytes = 20,
                      .token_checksum = "12345678",
                      .tokenizer_checksum = "9abcdef0"};
  e.blocks = {{3.5, 7.25}, {4, 6}};
  EXPECT_NEAR(e.perplexity(), 4, 1e-12);
  EXPECT_NEAR(e.bits_per_byte(), 1, 1e-12) << "two bits a token, two bytes a token";
  EXPECT_NEAR(e.word_perplexity(), 16, 1e-12);
  const Evaluation read = evaluation_from_json(evaluation_json(3, e));
  EXPECT_EQ(write_json(evaluation_json(3, read)), write_json(evaluation_json(3, e)));
  EXPECT_EQ(read.blocks.tokens, e.blocks.tokens);

  // A word of 200 tokens: e^(200 ln 50) = 10^340 overflows a double, but its logarithm does not.
  e.loss = std::log(50.0);
  e.text->tokens = 1000;
  const JsonValue json = parse_json(write_json(evaluation_json(3, e)), {}, "json");
  EXPECT_TRUE(json.at("text").at("word_perplexity").is_null());
  EXPECT_NEAR(json.at("text").real("nats_per_word"), 200 * std::log(50.0), 1e-9);
  EXPECT_NEAR(json.at("text").real("perplexity"), 50, 1e-9);
  EXPECT_EQ(evaluation_from_json(json).loss, e.loss);
  // An invalid model.
  e.loss = e.blocks.nats[0] = std::numeric_limits<double>::quiet_NaN();
  const JsonValue none = parse_json(write_json(evaluation_json(3, e)), {}, "json");
  EXPECT_TRUE(none.at("loss").is_null());
  EXPECT_TRUE(std::isnan(evaluation_from_json(none).loss) && std::isnan(evaluation_from_json(none).blocks.nats[0]));
  EXPECT_EQ(evaluation_from_json(none).blocks.nats[1], 7.25);
}

// The loss of the whole split does not depend on the batches of its windows, apart from rounding. BLAS adds in another
// order for another number of rows, which changes each target's f32 loss by a few roundings.
TEST_F(TextTask, IsEvaluatedWithWhatWasCounted) {
  RunConfig config =
      testing::with(RunConfig::make("text", "none", "code-quick"),
                    formatted("task.data={} task.length=8 model.width=8 model.heads=2 model.layers=1", folder_.path()));
  const auto task = config.make_task();
  const auto model = config.make_model(*task);
  const Evaluation one = evaluate(*model, *task, "validation", 0, 1), all = evaluate(*model, *task, "validation", 0, 6);
  EXPECT_EQ(one.loss_count, 44);
  EXPECT_EQ(one.text->tokens, 44);
  EXPECT_NEAR(one.loss, all.loss, 1e-6 * one.loss);
  EXPECT_NEAR(one.bits_per_byte(), one.loss / std::log(2.0), 1e-12) << "a byte a token";
}

// The token between documents begins a document, even if it occurs twice. At the beginning of a window it ends a
// document outside of the window.
TEST_F(TextTask, SeparateDocumentsBeginInTheirWindows) {
  std::string bytes;
  for (const int token : {256, 1, 2, 256, 256, 3, 4, 256, 5, 6, 7}) {
    bytes += {static_cast<char>(token % 256), static_cast<char>(token / 256)};
  }
  testing::Settings settings{{"data", folder_.file("documents.bin", bytes)},
                             {"tokenizer", folder_.file("tokenizer.json")},
                             {"length", "7"},
                             {"documents", "separate"}};
  const auto task = make_task("text", settings, 1);
  using Starts = std::vector<std::int32_t>;
  EXPECT_EQ(task->example("test", 0).starts, (Starts{3, 4}));
  EXPECT_EQ(task->example("test", 1).starts, Starts{});
  EXPECT_EQ(task->example("test", 1).tokens, (std::vector<std::int32_t>{256, 5, 6}));
  settings.back().second = "joined";
  EXPECT_EQ(make_task("text", settings, 1)->example("test", 0).starts, Starts{});
}

TEST_F(TextTask, WhatDoesNotFitIsNamed) {
  EXPECT_TRUE(contains(error_of([&] { make({{"length", "52"}}); }), "train.bin has 103 tokens; sequences of 52 need"));
  EXPECT_TRUE(contains(error_of([&] { make({{"length", "8"}})->example("validation", 6); }), "validation"));
  EXPECT_TRUE(contains(error_of([&] { make({{"length", "8"}, {"stride", "9"}}); }), "stride 9 is longer than"));
  EXPECT_TRUE(contains(error_of([&] { make({{"length", "8"}, {"after", "44"}}); }), "has no split to evaluate on"));
  EXPECT_EQ(make({{"length", "8"}})->vocabulary_record(), "257 tokens, " + sum_of(tokenizer_json(byte_tokenizer())));
}

// Each file's checksum is compared with the manifest before use, and again after a refusal.
TEST_F(TextTask, ChangedTokensAreNotUsed) {
  for (const char* split : {"validation", "train"}) {
    SCOPED_TRACE(split);
    const std::string path = folder_.file(formatted("{}.bin", split)), good = bytes_of_file(path);
    std::string bad = good;
    bad[40] = 'x';
    folder_.file(formatted("{}.bin", split), bad);
    const auto task = make({{"length", "8"}});
    for (int n = 0; n < 2; ++n) {
      EXPECT_TRUE(contains(error_of([&] { task->example(split, n); }), formatted("{}.bin: its checksum is ", split)));
    }
    folder_.file(formatted("{}.bin", split), good);
    EXPECT_NO_THROW(make({{"length", "8"}})->example(split, 0));
  }
}

}  // namespace tally::text_test
