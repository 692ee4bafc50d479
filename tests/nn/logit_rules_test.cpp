// Rules for the weights that use more than one logit: properties in addition to the tests of all encodings
// (tests/nn/encoding_test.cpp) and the reference values, which have seven tokens.
#include <gtest/gtest.h>

#include <map>

#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::logit_rules_test {

using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

constexpr std::int64_t heads = 2;

class LogitRules : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(LogitRules);

// With these options ("mix=none after=false") and start values, or random parameters; `parameters` gets them by name.
std::unique_ptr<Encoding> make(const std::string& name, const std::vector<std::pair<std::string, std::string>>& options,
                               bool random, std::map<std::string, Tensor>* parameters = nullptr) {
  EncodingChoice choice = EncodingChoice::parse(name);
  for (const auto& [option, value] : options) choice.set_option(option, value);
  return make_encoding(choice, AttentionSizes{}, [&](std::string_view path, const Shape& shape, const Fill& fill) {
    const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
    const Tensor made = random ? normal_tensor(path, shape, 0.5) : start.make(path, shape, fill);
    if (parameters != nullptr) (*parameters)[std::string(path)] = made;
    return made;
  });
}

Tensor weights_of(const Encoding& encoding, const Tensor& logits, const AttentionMask& mask = {}) {
  const NoGrad only_values;
  const Tensor seen = mask_tensor(mask, logits.size(2), logits.dtype(), logits.device());
  AttentionInput in{logits, logits, logits, logits, 1.0};
  in.mask = mask;
  return encoding.weights(logits, seen, in);
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(to_text(a.shape()), to_text(b.shape()));
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], tolerance) << n;
}

Tensor logits_of(std::int64_t length) { return normal_tensor("logits", {1, heads, length, length}); }

// Initially the kernels and mixes are the identity, and no norm or gate follows.
TEST_P(LogitRules, MultiTokenAttentionStartsAsPlainAttention) {
  const auto mta = make("mta", {{"norm", "false"}, {"gate", "false"}}, false);
  for (const std::int64_t length : {1, 5, 64, 65, 150}) {
    if (length > 5 && testing::only_small_kernels(GetParam())) break;
    SCOPED_TRACE(length);
    const Tensor logits = logits_of(length);
    expect_near(weights_of(*mta, logits), causal_softmax(logits), 1e-14);
    expect_near(mta->finish(logits, {logits, logits, logits, logits, 1.0}), logits, 0);
  }
}

// Keys are taken in blocks: at their edges, for kernels that reach over a block, and for windows, sums are as written.
TEST_P(LogitRules, MultiTokenSumsAreAsWrittenAcrossBlocks) {
  const bool fast = default_device() == Device{};
  struct Size {
    std::int64_t length, queries, keys;
    AttentionMask mask;
  };
  for (const Size& size : std::vector<Size>{{130, 6, 11, {}},
                                            {fast ? 200 : 70, 3, 69, {}},
                                            {70, 1, 3, {.window = 9, .first = 2}},
                                            {65, 2, 1, {.chunk = 20}}}) {
    if (size.length > 65 && testing::only_small_kernels(GetParam())) continue;
    SCOPED_TRACE(formatted("{} tokens, {} x {}", size.length, size.queries, size.keys));
    std::map<std::string, Tensor> parameters;
    const auto mta = make(
        "mta", {{"mix", "none"}, {"after", "false"}, {"queries", to_text(size.queries)}, {"keys", to_text(size.keys)}},
        true, &parameters);
    const Tensor logits = logits_of(size.length);
    const std::vector<double> s = logits.to_vector<double>(), kernel = parameters.at("mta.kernel").to_vector<double>();
    const auto at = [](std::int64_t n, std::int64_t width, std::int64_t m) {
      return static_cast<std::size_t>(n * width + m);
    };
    std::vector<double> sums(s.size());
    for (std::int64_t row = 0; row < heads * size.length; ++row) {
      const std::int64_t i = row % size.length, head = row / size.length;
      for (std::int64_t j = 0; j <= i; ++j) {
        double& sum = sums[at(row, size.length, j)];
        for (std::int64_t a = 0; a < size.queries; ++a) {
          const std::int64_t query = i - size.queries + 1 + a;
          for (std::int64_t b = 0; query >= 0 && b < size.keys; ++b) {
            const std::int64_t key = j - size.keys / 2 + b;
            if (key < 0 || !size.mask.attends(query, key)) continue;
            sum += kernel[at(head * size.queries + a, size.keys, b)] * s[at(row - i + query, size.length, key)];
          }
        }
      }
    }
    const Tensor seen = mask_tensor(size.mask, size.length, DType::f64, default_device());
    expect_near(weights_of(*mta, logits, size.mask),
                softmax(masked_fill_min(Tensor::from(sums, logits.shape(), default_device()), seen)), 1e-13);
  }
}

// A convolution over one key is the network of one pair.
TEST_P(LogitRules, ConvolutionsOfOneKeyAreTheNetworkOfAPair) {
  const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
  for (const char* bias : {"none", "kerple"}) {
    const auto made = [&](const std::string& name, std::vector<std::pair<std::string, std::string>> options) {
      EncodingChoice choice = EncodingChoice::parse(name);
      options.emplace_back("bias", bias);
      for (const auto& [option, value] : options) choice.set_option(option, value);
      return make_encoding(choice, {}, [&](std::string_view path, const Shape& shape, const Fill&) {
        const std::string own(path.substr(path.find('.') + 1));
        const Tensor drawn = normal_tensor(own, Shape{shape.numel()}, 0.5);
        return reshape(own.starts_with("bias.") ? abs(drawn) : drawn, shape);
      });
    };
    const Tensor logits = logits_of(9);
    expect_near(weights_of(*made("dape2", {{"kernel", "1"}}), logits), weights_of(*made("dape", {}), logits), 1e-14);
  }
}

// The hidden layer extends beyond the last key of the last row as it does in all other rows.
TEST_P(LogitRules, NoRowDependsOnTheLength) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  for (const char* name : {"dape2", "mta"}) {
    SCOPED_TRACE(name);
    const auto encoding = make(name, {}, true);
    encoding->project();
    const Tensor logits = logits_of(80);
    const Tensor all = weights_of(*encoding, logits);
    for (const std::int64_t length : {1, 2, 63, 64, 65}) {
      const auto first = [&](const Tensor& x) { return slice(slice(x, 2, 0, length), 3, 0, length); };
      expect_near(weights_of(*encoding, contiguous(first(logits))), first(all), 1e-14);
    }
  }
}

// Numbers of masked pairs may be anything.
TEST_P(LogitRules, LogitsOfUnseenPairsDoNotCount) {
  const AttentionMask mask{.window = 4, .chunk = 0, .first = 1};
  const Tensor logits = logits_of(12), seen = mask_tensor(mask, 12, DType::f64, default_device());
  const Tensor huge = Tensor::full({1}, std::numeric_limits<float>::lowest(), DType::f64, default_device());
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!entry->traits.replaces_softmax) continue;
    SCOPED_TRACE(entry->name);
    const auto encoding = make(entry->name, {}, true);
    encoding->project();
    const Tensor weights = weights_of(*encoding, logits, mask);
    expect_near(weights_of(*encoding, where(seen, logits, huge), mask), weights, 0);
    expect_near(masked_fill_zero(weights, seen), weights, 0);
  }
}

// No number of a half-made group may be mixed; one head can have no others.
TEST(LogitOptions, RefuseSizesThatDoNotFit) {
  const auto error = [](const std::string& name, const std::string& option, const std::string& value) {
    return testing::error_of([&] {
      EncodingChoice choice = EncodingChoice::parse(name);
      choice.set_option(option, value);
      choice.parts.front().options->validate();
      AttentionSizes sizes;
      sizes.heads = 3;
      make_encoding(choice, sizes, [](std::string_view, const Shape& shape, const Fill&) {
        return Tensor::zeros(shape, DType::f64, default_device());
      });
    });
  };
  EXPECT_EQ(error("mta", "keys", "4"), "[mta] keys = 4 must be odd: the pair's own key is in the middle");
  EXPECT_EQ(error("dape2", "kernel", "2"), "[dape2] kernel = 2 must be odd: the pair's own key is in the middle");
  EXPECT_EQ(error("mta", "group", "2"), "[mta] 3 heads are no whole number of groups of 2");
  EXPECT_EQ(error("mta", "group", "3"), "");
  EXPECT_EQ(error("mta", "group", "8"), "");
}

}  // namespace tally::logit_rules_test
