// Separate texts in one sequence, invisible to each other: each is computed as if it were the only one.
#include "tasks/data/batch.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "nn/layers/lstm.hpp"
#include "nn/optimizer.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/training/train_step.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::sequence_parts_test {

constexpr std::int64_t length = 14;

// The lengths of the texts of each sequence.
const std::vector<std::vector<std::int64_t>> lengths{{5, 9}, {14}, {1, 1, 12}, {3, 3, 3, 5}};

// The texts, by sequence. All tokens count, except every fifth of a sequence.
std::vector<std::vector<Example>> texts() {
  Rng rng({5, stream_of("texts"), 0});
  std::vector<std::vector<Example>> sequences;
  for (const std::vector<std::int64_t>& sequence : lengths) {
    std::vector<Example>& own = sequences.emplace_back();
    std::int64_t place = 0;
    for (const std::int64_t tokens : sequence) {
      Example& text = own.emplace_back();
      for (std::int64_t t = 0; t < tokens; ++t) {
        text.tokens.push_back(static_cast<std::int32_t>(rng.below(testing::vocabulary)));
        text.targets.push_back(static_cast<std::int32_t>(rng.below(testing::vocabulary)));
        text.loss_mask.push_back(++place % 5 != 0);
      }
      text.score_mask = text.loss_mask;
    }
  }
  return sequences;
}

// Appends a text to a sequence.
void append(Example& sequence, const Example& text) {
  if (!sequence.tokens.empty()) sequence.starts.push_back(static_cast<std::int32_t>(sequence.tokens.size()));
  const auto join = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  join(sequence.tokens, text.tokens);
  join(sequence.targets, text.targets);
  join(sequence.loss_mask, text.loss_mask);
  join(sequence.score_mask, text.score_mask);
}

// The texts of a sequence joined; each in a sequence of its own; and the same, after tokens that do not count.
std::vector<Example> joined() {
  std::vector<Example> examples;
  for (const std::vector<Example>& sequence : texts()) {
    Example& all = examples.emplace_back();
    for (const Example& text : sequence) append(all, text);
  }
  return examples;
}
std::vector<Example> alone() {
  std::vector<Example> examples;
  for (std::vector<Example>& sequence : texts()) std::ranges::move(sequence, std::back_inserter(examples));
  return examples;
}
std::vector<Example> in_place() {
  std::vector<Example> examples;
  for (const std::vector<Example>& sequence : texts()) {
    std::size_t begin = 0;
    for (const Example& text : sequence) {
      Example& example = examples.emplace_back();
      example.tokens.assign(begin, 0), example.targets.assign(begin, 0);
      example.loss_mask.assign(begin, 0), example.score_mask.assign(begin, 0);
      append(example, text);
      begin += text.tokens.size();
    }
  }
  return examples;
}

Evaluation evaluated(SequenceModel& model, const std::vector<Example>& examples) {
  Evaluation found;
  for (const Example& example : examples) evaluate_batch(model, collate({example}), found);
  return found;
}

// Whether the encoding depends on a text's position in the sequence.
bool tells_places(const std::string& name) {
  return name != "lstm" && std::ranges::any_of(EncodingChoice::parse(name).parts,
                                               [](const auto& part) { return part.entry->traits.embeds; });
}

std::unique_ptr<SequenceModel> model_of(const std::string& name) {
  if (name != "lstm") return testing::make_small_model(EncodingChoice::parse(name), "tiled", length);
  ModelOptions options;
  options.kind = name;
  options.layers = 1;
  options.width = 8;
  options.init = "fan-in";
  return make_model(options, EncodingChoice::parse("none"), testing::vocabulary, length, 1, DType::f64,
                    default_device());
}

// All encodings; a few if kernels run call by call, since the code under test does not depend on the device.
std::vector<std::string> names_on(Device device) {
  std::vector<std::string> names{"lstm", "cope+rope"};
  if (device.type == DeviceType::cuda_host) return names;
  for (const EncodingEntry* entry : encoding_registry()) names.push_back(entry->name);
  return names;
}

TEST(SequenceParts, AreAsLongAsTheirTexts) {
  const Batch batch = collate(joined());
  ASSERT_EQ(batch.tokens.shape(), (Shape{4, length}));
  const SequenceParts parts(batch);
  // 14 12 9 | 5 5 3 3 3 | 1 1
  ASSERT_EQ(parts.parts().size(), 3U);
  EXPECT_EQ(parts.parts()[0], (SequencePart{0, 3, 14, 0}));
  EXPECT_EQ(parts.parts()[1], (SequencePart{42, 5, 5, 24})) << "3 * 14^2 numbers are 24 times 5^2, at most";
  EXPECT_EQ(parts.parts()[2], (SequencePart{67, 2, 1, 725}));
  EXPECT_EQ(parts.size(), 69);
  EXPECT_LT(parts.size(), 2 * batch.tokens.numel());
  const Tensor tokens = parts.tokens.to(DType::i64), targets = parts.targets.to(DType::f64);
  EXPECT_EQ(parts.put_back(tokens).to_vector<std::int64_t>(), batch.tokens.to(DType::i64).to_vector<std::int64_t>());
  EXPECT_EQ(parts.put_back(targets).to_vector<double>(), batch.targets.to(DType::f64).to_vector<double>());
  const Tensor places = parts.put_back(parts.positions().to(DType::i64));
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t t = 0; t < length; ++t) {
      EXPECT_EQ(places.detached_select(0, row).to_vector<std::int64_t>()[static_cast<std::size_t>(t)], t);
    }
  }
  const auto counted = [](const Tensor& mask) {
    const std::vector<bool> counts = mask.to_vector<bool>();
    return std::count(counts.begin(), counts.end(), true);
  };
  EXPECT_EQ(counted(parts.loss_mask), counted(batch.loss_mask)) << "what fills up does not count";

  // The grouping does not depend on how much is computed at once, which is limited by tokens: two sequences have 28.
  const SequenceParts fewer(batch, 1);
  EXPECT_EQ(fewer.tokens.to_vector<std::int32_t>(), parts.tokens.to_vector<std::int32_t>());
  const std::vector<SequencePart> expected{{0, 1, 14, 0},  {14, 1, 14, 1}, {28, 1, 14, 2}, {42, 2, 5, 24},
                                           {52, 2, 5, 26}, {62, 1, 5, 28}, {67, 2, 1, 725}};
  EXPECT_EQ(fewer.parts(), expected);
}

TEST(SequenceParts, StayWithTheirSequencesInPartsOfABatch) {
  const Batch batch = collate(joined());
  const std::vector<Batch> parts = batch.parts(3);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].starts, (std::vector<std::vector<std::int32_t>>{{5}, {}, {1, 2}}));
  EXPECT_EQ(parts[1].starts, (std::vector<std::vector<std::int32_t>>{{3, 6, 9}}));
}

class SeparateTexts : public testing::OnDevice {};

// For every encoding, separate texts in one sequence have the same losses and answers as each text in a batch of its
// own. If the position in the sequence matters, the comparison is with each text at its position.
TEST_P(SeparateTexts, HaveTheLossesOfEachAlone) {
  const Batch batch = collate(joined());
  Batch merged = batch;
  merged.starts.clear();
  for (const std::string& name : names_on(GetParam())) {
    SCOPED_TRACE(name);
    const auto model = model_of(name);
    Evaluation together, seeing;
    evaluate_batch(*model, batch, together);
    evaluate_batch(*model, merged, seeing);
    const Evaluation apart = evaluated(*model, tells_places(name) ? in_place() : alone());
    if (tells_places(name)) {
      EXPECT_GT(std::abs(evaluated(*model, alone()).loss_sum - together.loss_sum), 1e-4) << "positions go on";
    }
    EXPECT_EQ(together.loss_count, apart.loss_count);
    EXPECT_NEAR(together.loss_sum, apart.loss_sum, 1e-10 * apart.loss_sum);
    EXPECT_EQ(together.wrong, apart.wrong);
    EXPECT_EQ(together.sequences, 4) << "a sequence stays one";
    EXPECT_GT(std::abs(seeing.loss_sum - together.loss_sum), 1e-4) << "seen or not makes a difference";
  }
}

// A step on them equals a step on a batch with one padded text per sequence; also with micro-batches.
TEST_P(SeparateTexts, AreTrainedAsEachAlone) {
  const Batch batch = collate(joined());
  const Batch filled_up = collate(alone()), in_places = collate(in_place());
  OptimizerOptions options;
  options.name = "sgd";
  options.lr = 0.5;
  options.clip = 0;
  const auto trained = [&](const std::string& name, const Batch& on, std::int64_t micro_batch) {
    const auto model = model_of(name);
    const auto optimizer = Optimizer::make(options, model->parameters());
    TrainStep step(*model, *optimizer, 1, micro_batch);
    std::vector<double> numbers;
    for (std::int64_t n = 1; n <= 2; ++n) numbers.push_back(step(on, n, 2).loss);
    for (const auto& [path, parameter] : model->parameters()) {
      const std::vector<double> values = parameter.to(Device{}).to_vector<double>();
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
    return numbers;
  };
  for (const std::string& name : names_on(GetParam())) {
    SCOPED_TRACE(name);
    const std::vector<double> expected = trained(name, tells_places(name) ? in_places : filled_up, 0);
    Evaluation untrained;
    evaluate_batch(*model_of(name), batch, untrained);
    for (const std::int64_t micro_batch : {0, 1}) {
      const std::vector<double> found = trained(name, batch, micro_batch);
      EXPECT_NEAR(found[0], untrained.loss_sum / static_cast<double>(untrained.loss_count), 1e-9);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t n = 0; n < found.size(); ++n) {
        ASSERT_NEAR(found[n], expected[n], 1e-9 * (1 + std::abs(expected[n]))) << micro_batch << " " << n;
      }
    }
  }
}

TALLY_ON_EVERY_DEVICE(SeparateTexts);

TEST(SequenceParts, HaveNoOnePicture) {
  const auto model = model_of("alibi");
  const std::string refused = testing::error_of([&] { trace_pass(*model, collate(joined()), false); });
  EXPECT_NE(refused.find("several texts that do not see each other"), refused.npos) << refused;
}

}  // namespace tally::sequence_parts_test
