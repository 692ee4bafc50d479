// Texts longer than FIRE's threshold L = |512 m|, where each query has its own bias. m is a parameter that starts at 1,
// not an option, so no walk over options gets there with few tokens.
#include <gtest/gtest.h>

#include "tests/nn/small_model.hpp"

namespace tally::fire_test {

using testing::some_tokens;

class Fire : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Fire);

// With the threshold at L tokens.
std::unique_ptr<Transformer> make_model(double threshold, const std::string& attention = "tiled",
                                        const std::string& encoding = "fire") {
  EncodingChoice choice = EncodingChoice::parse(encoding);
  if (encoding.ends_with("ssmax")) choice.set_option("ssmax.whole", "true");
  auto model = testing::make_small_model(choice, attention, 8);
  for (auto& [path, parameter] : model->parameters()) {
    if (path.ends_with("fire.m")) parameter.fill(threshold / 512);
  }
  return model;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  EXPECT_EQ(x.size(), y.size());
  double difference = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    EXPECT_TRUE(std::isfinite(x[n]));
    difference = std::max(difference, std::abs(x[n] - y[n]));
  }
  return difference;
}

// Compares logits and all gradients.
void expect_the_same_in_both_forms(const std::string& encoding, double threshold, std::int64_t length) {
  const Tensor tokens = some_tokens(length);
  const Tensor mask = Tensor::full(tokens.shape(), 1, DType::boolean, default_device());
  const auto tiled = make_model(threshold, "tiled", encoding), composed = make_model(threshold, "composed", encoding);
  std::vector<Tensor> logits;
  for (Transformer* model : {tiled.get(), composed.get()}) {
    logits.push_back(model->forward(tokens));
    backward(cross_entropy(logits.back(), tokens, mask));
  }
  EXPECT_LE(largest_difference(logits[0], logits[1]), 1e-10) << encoding;
  const NamedTensors ours = tiled->parameters(), theirs = composed->parameters();
  for (std::size_t n = 0; n < ours.size(); ++n) {
    EXPECT_LE(largest_difference(gradient(ours[n].second), gradient(theirs[n].second)), 1e-10)
        << encoding << ": " << ours[n].first;
  }
}

TEST_P(Fire, IsTheSameInBothFormsBeyondItsThreshold) {
  constexpr std::int64_t length = 67;
  expect_the_same_in_both_forms("fire", 20.5, length);
  // The threshold counts.
  const NoGrad only_values;
  const Tensor tokens = some_tokens(length);
  EXPECT_GT(largest_difference(make_model(40.5)->forward(tokens), make_model(20.5)->forward(tokens)), 1e-3);
}

TEST_P(Fire, TakesMemoryLinearInTheLengthBeyondItsThreshold) {
  const auto peak_of_step = [](std::int64_t length) {
    const Tensor tokens = some_tokens(length), mask = Tensor::full(tokens.shape(), 1, DType::boolean, default_device());
    const auto model = make_model(20.5);
    reset_peak_memory(default_device());
    const std::size_t before = memory_counters(default_device()).live_bytes;
    backward(cross_entropy(model->forward(tokens), tokens, mask));
    return static_cast<double>(memory_counters(default_device()).peak_bytes - before);
  };
  EXPECT_LT(peak_of_step(192), 2.1 * peak_of_step(96));
}

// Policies that sum along the keys, that sum down the queries, that read the biases, that mask pairs, and with a factor
// of whole rows.
TEST_P(Fire, IsTheSameInBothFormsBesideAnotherPolicy) {
  for (const char* const sum : {"cope+fire", "fire+selective", "fire+stick-breaking", "fire+tra"}) {
    expect_the_same_in_both_forms(sum, 5.5, 40);
  }
  expect_the_same_in_both_forms("cope+fire+ssmax", 5.5, 20);
}

// Steps on both sides of it.
TEST_P(Fire, GeneratesWhatTheWholeTextGivesBeyondItsThreshold) {
  constexpr std::int64_t length = 11;
  const NoGrad only_values;
  const auto model = make_model(4.5);
  const Tensor tokens = some_tokens(length), whole = model->forward(tokens);
  GenerationState state;
  for (std::int64_t first = 0, last = 3; first < length; first = last, last = std::min(last + 2, length)) {
    const Tensor rows = model->step(slice(tokens, 1, first, last), state);
    EXPECT_LE(largest_difference(rows, slice(whole, 1, first, last)), 1e-10) << first;
  }
}

}  // namespace tally::fire_test
