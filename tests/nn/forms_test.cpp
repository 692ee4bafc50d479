// Whole models with every encoding, and with a part of all pairs of encodings that combine or share layers or heads.
// The tiled form on each device is compared with the composed one on the CPU. Also causality across the edges of tiles,
// and generation token by token. No encoding is named.
#include <gtest/gtest.h>

#include "tests/nn/refusals.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::forms_test {

using testing::all_cases;
using testing::EncodingCase;
using testing::plain_cases;
using testing::some_tokens;
using testing::together_cases;

class Forms : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Forms);

// More keys than a tile has.
constexpr std::int64_t longest = 150;
// Not so where the CPU executes kernels of a GPU: fewer cases are for that.
bool fast() { return default_device() != testing::on_cuda_host; }
// More rows than a tile has, which is smaller on a GPU.
std::int64_t several_tiles() { return fast() ? 67 : 35; }

std::unique_ptr<Transformer> make_model(const EncodingChoice& choice, const std::string& attention,
                                        std::int64_t key_heads) {
  return testing::make_small_model(choice, attention, longest, key_heads);
}

// A model in tiled form, none when the encodings must refuse each other or this length.
std::unique_ptr<Transformer> model_for(const EncodingCase& one, std::int64_t length, std::int64_t key_heads = 0) {
  const NoGrad only_the_value;
  return testing::unless_refused(one, length, longest, [&] {
    auto model = make_model(one.choice, "tiled", key_heads);
    model->forward(some_tokens(length));
    return model;
  });
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  const std::vector<double> x = found.to_vector<double>(), y = expected.to_vector<double>();
  ASSERT_EQ(x.size(), y.size());
  const double bound = tolerance * std::max(1e-3, largest(y));
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_LE(std::abs(x[n] - y[n]), bound) << n;
}

void expect_same_forms(const EncodingCase& one, std::int64_t length, Device device, std::int64_t key_heads = 0) {
  SCOPED_TRACE(
      formatted("{} T {}{}", one.label, length, key_heads > 0 ? formatted(" heads of keys {}", key_heads) : ""));
  const auto tiled = model_for(one, length, key_heads);
  if (tiled == nullptr) return;
  const auto results = [&](Transformer& model) {
    const Tensor tokens = some_tokens(length);
    const Tensor mask = Tensor::full(tokens.shape(), 1, DType::boolean, default_device());
    const Tensor logits = model.forward(tokens);
    backward(cross_entropy(logits, tokens, mask));
    return logits;
  };
  const Tensor found = results(*tiled);
  set_default_device({});
  const auto composed = make_model(one.choice, "composed", key_heads);
  const Tensor expected = results(*composed);
  set_default_device(device);
  expect_near(found, expected, 1e-10);
  const NamedTensors ours = tiled->parameters(), theirs = composed->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  double largest_of_all = 0;
  for (const auto& [path, parameter] : theirs) {
    if (!gradient(parameter).defined()) continue;
    largest_of_all = std::max(largest_of_all, largest(gradient(parameter).to_vector<double>()));
  }
  for (std::size_t n = 0; n < ours.size(); ++n) {
    SCOPED_TRACE(ours[n].first);
    const Tensor own = gradient(ours[n].second), other = gradient(theirs[n].second);
    ASSERT_EQ(own.defined(), other.defined());
    if (!own.defined()) continue;
    const std::vector<double> x = own.to_vector<double>(), y = other.to_vector<double>();
    const double scale = testing::zero_by_symmetry(one, ours[n].first, length) ? largest_of_all : largest(y);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::abs(x[i] - y[i]), 1e-10 * scale) << i;
  }
}

// Two tiles of rows; on the CPU every third case has two tiles of keys too, which are smaller on a GPU.
std::int64_t length_of_case(std::size_t n) { return fast() && n % 3 == 0 ? longest : several_tiles(); }

void expect_same_forms(const std::vector<EncodingCase>& cases) {
  for (std::size_t n = 0; n < cases.size(); ++n) expect_same_forms(cases[n], length_of_case(n), default_device());
}

TEST_P(Forms, AreTheSameForEveryEncodingAndOption) { expect_same_forms(testing::every(fast() ? 1 : 3, all_cases())); }

TEST_P(Forms, AreTheSameAtEveryLength) {
  for (const EncodingCase& one : plain_cases()) {
    for (const std::int64_t length : {std::int64_t{1}, 2 * several_tiles()}) {
      expect_same_forms(one, length, default_device());
    }
  }
}

// All four heads share their keys, or every two. Equal tokens have equal keys. If an encoding selects one of several
// equal keys, rounding decides, which differs between devices, and their gradients differ.
TEST_P(Forms, AreTheSameWithFewerHeadsOfKeys) {
  const auto chooses = [](const EncodingCase& one) { return one.choice.parts[0].entry->traits.straight_through; };
  const std::vector<EncodingCase> some = testing::every(fast() ? 5 : 40, all_cases());
  for (std::size_t n = 0; n < some.size(); ++n) {
    if (!fast() && chooses(some[n])) continue;
    expect_same_forms(some[n], several_tiles(), default_device(), n % 2 == 0 ? 1 : 2);
  }
  for (const EncodingCase& one : plain_cases()) {
    if (!fast() && chooses(one)) continue;
    for (const std::int64_t key_heads : {1, 2}) {
      expect_same_forms(one, several_tiles(), default_device(), key_heads);
    }
  }
}

std::vector<EncodingCase> some_windowed() { return testing::every(fast() ? 1 : 3, testing::windowed_cases()); }

TEST_P(Forms, AreTheSameInWindows) { expect_same_forms(some_windowed()); }

TEST_P(Forms, AreTheSameForEncodingsTogether) {
  expect_same_forms(testing::every(fast() ? 3 : 15, together_cases(fast() ? 1 : 4)));
}

// Otherwise the tests of combinations are weak.
TEST(Together, OnlyThoseAreLeftOutThatMustBe) {
  for (const EncodingCase& one : plain_cases()) {
    EXPECT_FALSE(testing::refused(one.choice, longest, longest)) << one.label;
    EXPECT_NE(model_for(one, longest), nullptr) << one.label;
  }
  // Tables of two rows.
  for (const EncodingCase& one : all_cases()) {
    EXPECT_TRUE(model_for(one, 3) != nullptr || one.label.find("=2") != std::string::npos) << one.label;
  }
  const std::vector<EncodingCase> cases = together_cases(), rotated = testing::rotated_query_cases();
  const auto models_of = [](const std::vector<EncodingCase>& some) {
    return std::count_if(some.begin(), some.end(),
                         [](const EncodingCase& one) { return model_for(one, 2) != nullptr; });
  };
  EXPECT_GT(models_of(cases), static_cast<std::ptrdiff_t>(cases.size()) * 9 / 10);
  EXPECT_EQ(models_of(rotated), static_cast<std::ptrdiff_t>(rotated.size()));
}

std::vector<EncodingCase> some_together() { return testing::every(fast() ? 6 : 24, together_cases()); }

void expect_causal(const EncodingCase& one) {
  SCOPED_TRACE(one.label);
  const NoGrad only_values;
  const std::int64_t length = fast() ? longest : several_tiles();
  const std::vector<std::int64_t> edges_of_tiles =
      fast() ? std::vector<std::int64_t>{63, 64, 128} : std::vector<std::int64_t>{32};
  const auto model = model_for(one, length);
  if (model == nullptr) return;
  testing::expect_causal_at(*model, some_tokens(length), edges_of_tiles);
}

TEST_P(Forms, AreCausalAcrossTiles) {
  for (const EncodingCase& one : plain_cases()) expect_causal(one);
  for (const EncodingCase& one : some_windowed()) expect_causal(one);
  for (const EncodingCase& one : some_together()) expect_causal(one);
}

void expect_generates_the_whole(const EncodingCase& one, std::int64_t key_heads, std::int64_t length = 11) {
  SCOPED_TRACE(formatted("{} heads of keys {}", one.label, key_heads));
  const Tensor tokens = some_tokens(length);
  const auto model = model_for(one, length, key_heads);
  if (model == nullptr) return;
  const Tensor whole = model->forward(tokens);
  GenerationState state;
  for (std::int64_t first = 0; first < length; first += first == 0 ? 5 : 3) {
    const std::int64_t last = first == 0 ? 5 : first + 3;
    // If the last rows of a text change when it continues, compare with the text up to here.
    const Tensor expected = model->rows_by_end() == 0 ? whole : model->forward(slice(tokens, 1, 0, last));
    expect_near(model->step(slice(tokens, 1, first, last), state), slice(expected, 1, first, last), 1e-10);
  }
}

TEST_P(Forms, GenerateWhatTheWholeTextGives) {
  const NoGrad only_values;
  for (const EncodingCase& one : some_together()) expect_generates_the_whole(one, 0);
  for (const EncodingCase& one : plain_cases()) {
    for (const std::int64_t key_heads : {1, 2}) expect_generates_the_whole(one, key_heads);
  }
  for (const EncodingCase& one : some_windowed()) expect_generates_the_whole(one, 0, 35);
}

}  // namespace tally::forms_test
