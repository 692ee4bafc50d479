// Text generated token by token: rows computed from cached tokens compared with the whole sequence.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "core/error.hpp"
#include "nn/attention/kv_cache.hpp"
#include "nn/transformer.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/nn/refusals.hpp"
#include "tests/nn/share.hpp"
#include "tests/nn/small_model.hpp"

namespace tally {
namespace generation_test {

using testing::EncodingCase;
using testing::normal_tensor;
using testing::plain_cases;
using testing::some_tokens;
using testing::vocabulary;

constexpr std::int64_t length = 13, long_length = 140;  // more keys than a tile has

std::unique_ptr<Transformer> make_model(const EncodingChoice& choice, std::int64_t longest = length) {
  return testing::make_small_model(choice, "tiled", longest);
}

// Logits of all tokens, given a few at a time.
Tensor in_steps(Transformer& model, const Tensor& tokens, const std::vector<std::int64_t>& counts,
                GenerationState& state) {
  std::vector<Tensor> rows;
  std::int64_t begin = state.length;
  for (const std::int64_t count : counts) {
    rows.push_back(model.step(slice(tokens, 1, begin, begin + count), state));
    EXPECT_EQ(rows.back().size(1), count);
    begin += count;
  }
  EXPECT_EQ(state.length, begin);
  return concat(rows, 1);
}

void expect_near(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape()));
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t n = 0; n < a.size(); ++n) ASSERT_NEAR(a[n], b[n], 1e-10) << n;
}

// The rows of the whole text. If later tokens change rows, the rows of the text up to the end of each step.
Tensor expected_in_steps(Transformer& model, const Tensor& tokens, const std::vector<std::int64_t>& counts) {
  if (model.rows_by_end() == 0 && model.same_up_to(1) == Encoding::never) return model.forward(tokens);
  std::vector<Tensor> rows;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    rows.push_back(slice(model.forward(slice(tokens, 1, 0, begin + count)), 1, begin, begin + count));
    begin += count;
  }
  return concat(rows, 1);
}

void expect_the_same_in_steps(const EncodingChoice& choice, bool kept) {
  const auto model = make_model(choice);
  const Tensor tokens = some_tokens(length, 2);
  const NoGrad only_values;
  const std::vector<std::int64_t> some{3, 1, 1, 1, 5, 1, 1}, one_each(length, 1);
  GenerationState state;
  expect_near(in_steps(*model, tokens, some, state), expected_in_steps(*model, tokens, some));
  EXPECT_EQ(!state.layers.empty(), kept) << "computed from the caches, not from all tokens again";
  GenerationState from_nothing;
  expect_near(in_steps(*model, tokens, one_each, from_nothing), expected_in_steps(*model, tokens, one_each));
}

class Generation : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Generation);

TEST_P(Generation, GivesTheLogitsOfTheWholeSequenceForEveryEncoding) {
  for (const EncodingCase& one : testing::cases_here()) {
    if (testing::refused(one.choice, length, length)) continue;
    SCOPED_TRACE(one.label);
    expect_the_same_in_steps(one.choice, !make_model(one.choice)->is_composed());
  }
}

// A text that outgrows the length up to which an encoding's values are the same: it is computed again, once or at every
// token.
TEST_P(Generation, BeginsAnewWhereAnEncodingChanges) {
  for (const char* text : {"rope", "cope+rope", "0:none,1:rope"}) {
    SCOPED_TRACE(text);
    expect_the_same_in_steps(
        encoding(text, {{"rope.stretch", "longrope"}, {"trained-length", 7}, {"rope.long-factors", "2/9"}}), true);
    expect_the_same_in_steps(encoding(text, {{"rope.stretch", "dynamic"}, {"trained-length", 7}, {"factor", 3.0}}),
                             true);
  }
}

TEST_P(Generation, KeepsApartWhatPartsAndGroupsKeep) {
  for (const std::string text :
       {"cope+rope", "0:none,1:cope", "cope@0,alibi@1", "cope@0,cope@1", "0:absolute+rope,1:cope@0,cope+relative@1"}) {
    SCOPED_TRACE(text);
    EncodingChoice choice = EncodingChoice::parse(text);
    if (text.find("cope") != std::string::npos) choice.set_option("cope.gates", "values");
    expect_the_same_in_steps(choice, true);
  }
}

// A step may begin in one tile of keys or rows and end in the next, or be after it.
TEST_P(Generation, GoesOnBeyondATileOfKeys) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  std::vector<EncodingCase> cases = plain_cases();
  for (const char* text : {"cope+rope", "fox+kerple", "0:relative,1:cope@0,fox-pro@1"}) {
    cases.push_back({EncodingChoice::parse(text), text});
  }
  const NoGrad only_values;
  const Tensor tokens = some_tokens(long_length);
  for (const EncodingCase& one : cases) {
    SCOPED_TRACE(one.label);
    const auto model = make_model(one.choice, long_length);
    const Tensor whole = model->forward(tokens);
    GenerationState single, several;
    expect_near(in_steps(*model, tokens, {62, 1, 1, 1, 1, 60, 1, 1, 1, 1, 10}, single), whole);
    expect_near(in_steps(*model, tokens, {126, 5, 9}, several), whole);
  }
}

// Wherever the tokens of a step begin.
TEST_P(Generation, GoesOnBehindAWindow) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  const std::vector<std::string> windows{"[window=9]",           "[window=5,first=3]",           "[chunk=7]",
                                         "[window=40,chunk=33]", "[window=20,chunk=11,first=2]", "[chunk=30,first=1]"};
  std::vector<EncodingCase> cases;
  std::size_t next = 0;
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string text = formatted("{}{}", entry->name, windows[next++ % windows.size()]);
    cases.push_back({EncodingChoice::parse(text), text});
  }
  for (const std::string& window : windows) {
    for (const char* sum : {"alibi+cope+rope", "fox+relative", "nexus+selective", "path+transformer-xl", "ssmax+t5"}) {
      cases.push_back({EncodingChoice::parse(sum + window), sum + window});
    }
  }
  cases.push_back({EncodingChoice::parse("0:cope[window=9]@0,alibi[window=5,first=3]@1,1:fox"), "groups"});
  cases = testing::asked(std::move(cases));
  if (testing::takes_a_share()) cases = testing::every(8, std::move(cases));
  for (EncodingCase& one : cases) {
    for (EncodingChoice::Part& part : one.choice.parts) {
      if (part.entry->name == "cope") set_option(*part.options, "cope", "gates", "sep-keys");
      if (part.entry->name == "ssmax") set_option(*part.options, "ssmax", "whole", "true");
      if (part.entry->name == "relative") set_option(*part.options, "relative", "distances", "20");
      if (part.entry->name == "relative") set_option(*part.options, "relative", "far", "cap");
    }
    SCOPED_TRACE(one.label);
    const auto model = make_model(one.choice, long_length);
    const Tensor tokens = some_tokens(long_length);
    const NoGrad only_values;
    const Tensor whole = model->forward(tokens);
    GenerationState single, several;
    expect_near(in_steps(*model, tokens, {75, 1, 1, 1, 40, 1, 1, 15, 1, 1, 1, 1, 1}, single), whole);
    expect_near(in_steps(*model, tokens, {2, 100, 30, 8}, several), whole);
  }
}

// The cache grows with every token. Blocks of earlier sizes must be reused, or the memory of a text is quadratic: 256
// times the cache at its end.
TEST(GenerationMemory, GrowsWithTheTextAndNoFaster) {
  constexpr std::int64_t tokens = 512;
  ModelOptions options;
  options.layers = 2;
  options.width = 64;
  Transformer model(options, EncodingChoice::parse("none"), vocabulary, tokens, 1, DType::f64);
  const Tensor text = some_tokens(tokens);
  const auto taken = [] {
    const MemoryCounters counters = memory_counters(default_device());
    return counters.live_bytes + counters.cached_bytes;
  };
  const std::size_t before = taken();
  GenerationState state;
  for (std::int64_t t = 0; t < tokens; ++t) model.step(slice(text, 1, t, t + 1), state);
  const std::size_t kept = 2 * 2 * tokens * 64 * sizeof(double);  // keys and values of two layers
  EXPECT_LE(taken() - before, 64 * kept);
}

// Several texts go on from one beginning, in turns.
TEST_P(Generation, BranchesDoNotDisturbEachOther) {
  const NoGrad only_values;
  const auto model = make_model(EncodingChoice::parse("cope+rope"));
  const Tensor tokens = some_tokens(length), others = some_tokens(2 * length);
  const auto last_of = [&](const std::vector<Tensor>& parts, std::int64_t count) {
    const Tensor text = concat(parts, 1);
    return slice(model->forward(text), 1, text.size(1) - count, text.size(1));
  };
  GenerationState trunk;
  for (std::int64_t t = 0; t + 3 < length; ++t) {
    model->step(slice(tokens, 1, t, t + 1), trunk);
    const Tensor before = slice(tokens, 1, 0, t + 1), beside = slice(others, 1, length + t, length + t + 2);
    const Tensor elsewhere = slice(others, 1, t, t + 2), next = slice(others, 1, t + 2, t + 3);
    GenerationState branch = trunk, again = trunk, another = trunk;
    const Tensor found = model->step(beside, branch);
    expect_near(found, last_of({before, beside}, 2));
    expect_near(model->step(beside, again), found);
    // After the same rows; the first branch still finds its own rows.
    expect_near(model->step(elsewhere, another), last_of({before, elsewhere}, 2));
    expect_near(model->step(next, branch), last_of({before, beside, next}, 1));
  }
  const Tensor last = slice(tokens, 1, length - 3, length - 2);
  expect_near(model->step(last, trunk), last_of({slice(tokens, 1, 0, length - 2)}, 1));
}

struct Keeping final : Encoding {
  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Dense{unsqueeze(select(in.keep("rows", in.k, 2), 3, 0), 2)});
  }
};
struct Whole final : Encoding {
  Tensor mix(const AttentionInput& in) const override { return cumsum_of_rows(in.v); }
  static Tensor cumsum_of_rows(const Tensor& v) { return transpose(cumsum(contiguous(transpose(v, 2, 3))), 2, 3); }
};
struct Even final : Encoding {
  Tensor weights(const Tensor& logits, const Tensor& seen, const AttentionInput& in) const override {
    return Encoding::weights(multiply(logits, 0.5), seen, in);
  }
};

template <class Made>
EncodingEntry entry_of(const std::string& name) {
  return encoding_entry<NoOptions, Made>(name, "", "", "");
}

EncodingChoice choice_of(std::initializer_list<const EncodingEntry*> entries) {
  EncodingChoice choice;
  for (const EncodingEntry* entry : entries) choice.parts.push_back({entry, entry->make_options()});
  return choice;
}

TEST_P(Generation, TwoPartsMayKeepUnderOneName) {
  const EncodingEntry first = entry_of<Keeping>("first"), second = entry_of<Keeping>("second");
  expect_the_same_in_steps(choice_of({&first, &second}), true);
}

TEST_P(Generation, ComputesAnewWhatCannotGoOn) {
  const EncodingEntry whole = entry_of<Whole>("whole"), even = entry_of<Even>("even");
  expect_the_same_in_steps(choice_of({&whole}), false);
  expect_the_same_in_steps(choice_of({&even}), false);

  const auto model = testing::make_small_model(EncodingChoice::parse("cope"), "composed", length);
  GenerationState state;
  const NoGrad only_values;
  expect_near(in_steps(*model, some_tokens(length), {4, 1, 1, 7}, state), model->forward(some_tokens(length)));
  EXPECT_TRUE(state.tokens.defined());
}

TEST(Mixing, HasNoWeightsToLeaveOut) {
  const EncodingEntry whole = entry_of<Whole>("whole");
  ModelOptions options;
  options.layers = 1;
  options.width = 8;
  options.heads = 2;
  options.dropout = 0.1;
  Transformer model(options, choice_of({&whole}), vocabulary, length, 1);
  EXPECT_THROW(model.forward(some_tokens(length), {.training = true}), Error);
  model.forward(some_tokens(length));
}

TEST_P(Generation, RecordsNothingAndIsAsItWasAfterAnError) {
  const auto model = make_model(EncodingChoice::parse("absolute+relative"));
  const Tensor tokens = some_tokens(length);
  GenerationState state;
  const std::int64_t before = live_nodes();
  const Tensor logits = model->step(tokens, state);
  EXPECT_FALSE(requires_grad(logits));
  EXPECT_EQ(live_nodes(), before);
  EXPECT_THROW(model->step(slice(tokens, 1, 0, 1), state), Error);  // the table holds 13 positions
  EXPECT_EQ(state.length, length);
  EXPECT_THROW(model->step(Tensor::from(std::vector<std::int32_t>{1}, {1}, default_device()), state), Error);

  GenerationState shorter;
  model->step(slice(tokens, 1, 0, 4), shorter);
  // Ids are checked only on the CPU, where that needs no wait (autograd/ops/index.cpp).
  if (GetParam() == Device{}) {
    EXPECT_THROW(model->step(Tensor::from(std::vector<std::int32_t>{99}, {1, 1}), shorter), Error);
  }
  const NoGrad only_values;
  expect_near(model->step(slice(tokens, 1, 4, 6), shorter), slice(model->forward(slice(tokens, 1, 0, 6)), 1, 4, 6));
}

}  // namespace generation_test
}  // namespace tally
