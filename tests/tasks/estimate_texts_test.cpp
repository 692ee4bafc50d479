// Memory of batches with separate texts. The text decides how a sequence is cut into parts, so the estimate is the
// maximum over all texts.
#include <gtest/gtest.h>

#include "core/math/random.hpp"
#include "tasks/language/separate_texts.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/tasks/measured_peak.hpp"

namespace tally::estimate_texts_test {

constexpr std::int64_t length = 48;

// Lengths of the consecutive texts in one sequence.
using Texts = std::vector<std::int64_t>;

// All sequences are cut into the same texts, in the order of a training task.
class CutTask final : public Task, public SeparateTexts {
 public:
  CutTask(const Task& of, std::vector<Texts> texts) : of_(of), texts_(std::move(texts)) {}
  bool separates_texts() const override { return true; }
  const std::vector<std::string>& vocabulary() const override { return of_.vocabulary(); }
  const std::vector<Split>& splits() const override { return of_.splits(); }
  std::string text(const Example& example) const override { return of_.text(example); }
  std::vector<std::int32_t> encode(std::string_view text) const override { return of_.encode(text); }
  Example example(std::string_view split, std::int64_t index) const override {
    Example example = of_.example(split, index);
    std::int64_t begin = 0;
    for (const std::int64_t tokens : texts_[static_cast<std::size_t>(index) % texts_.size()]) {
      if (begin > 0 && begin < std::ssize(example.tokens)) example.starts.push_back(static_cast<std::int32_t>(begin));
      begin += tokens;
    }
    return example;
  }

 private:
  const Task& of_;
  std::vector<Texts> texts_;
};

RunConfig small(const std::string& encoding, const std::string& more = "") {
  return testing::configured("flip-flop", encoding,
                             formatted("task.length={} model.width=16 model.layers=1 batch=6 {}", length, more));
}

// Various texts: one per sequence, texts of a single token, repeated halves, and random ones.
std::vector<std::vector<Texts>> many_texts() {
  const Texts whole{length}, single(length, 1), halved{24, 12, 6, 3, 1, 1, 1}, thirds(3, 16), odd{25, 23};
  std::vector<std::vector<Texts>> all{{whole}, {single}, {halved}, {thirds}, {odd}, {whole, halved, single, odd}};
  Rng rng({3, stream_of("texts"), 0});
  for (int n = 0; n < 2; ++n) {
    std::vector<Texts>& texts = all.emplace_back();
    for (int sequence = 0; sequence < 6; ++sequence) {
      Texts& one = texts.emplace_back();
      for (std::int64_t left = length; left > 0; left -= one.back()) {
        one.push_back(1 + rng.below(static_cast<std::uint32_t>(left)));
      }
    }
  }
  return all;
}

// The estimate, and the largest measurement over these texts.
std::pair<double, double> told_and_measured(const RunConfig& config) {
  const std::unique_ptr<Task> task = config.make_task();
  const std::vector<std::vector<Texts>> all = many_texts();
  const MemoryEstimate estimate = estimate_training(config, CutTask(*task, all.front()));
  EXPECT_TRUE(estimate.at_most);
  const double told = estimate.total() - estimate.data;
  double most = 0;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const double measured = testing::measured_peak(config, CutTask(*task, all[n]), true);
    EXPECT_LE(measured, told) << "text " << n;
    most = std::max(most, measured);
  }
  return {told, most};
}

TEST(EstimateOfSeparateTexts, IsTheMostThatAnyTextTakes) {
  for (const testing::EncodingCase& one : testing::every(9, testing::plain_cases())) {
    SCOPED_TRACE(one.label);
    const auto [told, most] = told_and_measured(small(one.label));
    EXPECT_LE(told, 1.5 * most) << "and not much more";
  }
  std::size_t n = 0;
  for (const char* options : {"model.attention=composed", "model.dropout=0.1", "micro-batch=1", "batch=1",
                              "model.width=8 model.heads=2 model.layers=1", "dtype=f64 optimiser.name=sgd"}) {
    SCOPED_TRACE(options);
    const auto [told, most] = told_and_measured(small(n++ % 2 == 0 ? "absolute" : "cope+rope", options));
    EXPECT_LE(told, 2 * most);
  }
}

}  // namespace tally::estimate_texts_test
