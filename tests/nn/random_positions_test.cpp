// Randomised positions: the draws, and the encodings that read them.
#include "nn/encoding/random_positions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/error_of.hpp"
#include "tests/nn/small_model.hpp"

namespace tally::random_positions_test {

using testing::contains;
using testing::make_small_model;
using testing::some_tokens;

constexpr std::int64_t length = 6, range = 20;
using Numbers = std::vector<double>;

Numbers logits_at(const std::string& encoding, const Numbers& positions, std::int64_t key_heads = 0) {
  const NoGrad only_values;
  const auto model = make_small_model(EncodingChoice::parse(encoding), "tiled", range, key_heads);
  ForwardContext pass;
  if (!positions.empty()) {
    pass.positions.drawn = Tensor::from(positions, {std::ssize(positions)}, default_device());
    pass.positions.end = range;
  }
  return model->forward(some_tokens(length), pass).to_vector<double>();
}

double difference(const Numbers& a, const Numbers& b) {
  double most = 0;
  for (std::size_t n = 0; n < a.size(); ++n) most = std::max(most, std::abs(a[n] - b[n]));
  return most;
}

TEST(RandomPositions, ThatAreConsecutiveAreTheUsual) {
  for (const char* text : {"absolute", "alibi", "rope", "sinusoidal", "xpos", "alibi+rope", "cope+rope"}) {
    const Numbers usual = logits_at(text, {});
    EXPECT_LT(difference(logits_at(text, {0, 1, 2, 3, 4, 5}), usual), 1e-12) << text;
    EXPECT_GT(difference(logits_at(text, {0, 1, 2, 3, 4, 7}), usual), 1e-6) << text;
  }
  EXPECT_LT(difference(logits_at("alibi+rope", {0, 1, 2, 3, 4, 5}, 2), logits_at("alibi+rope", {}, 2)), 1e-12);
}

// Only distances between positions matter, whole or not.
TEST(RandomPositions, OfRelativeEncodingsMayBeMoved) {
  for (const char* text : {"alibi", "rope", "xpos"}) {
    const Numbers here = logits_at(text, {0, 0.5, 3, 7.25, 8, 12});
    EXPECT_LT(difference(logits_at(text, {2.5, 3, 5.5, 9.75, 10.5, 14.5}), here), 1e-9) << text;
    EXPECT_GT(difference(logits_at(text, {0, 0.5, 3, 7.25, 8, 14}), here), 1e-6) << text;
  }
}

TEST(RandomPositions, AreReadByTheFormula) {
  const EncodingEntry& entry = find_encoding("sinusoidal");
  const auto encoding = entry.make({}, *entry.make_options());
  TokenPositions at;
  at.drawn = Tensor::from(Numbers{0.5, 3}, {2});
  const Numbers found = encoding->embed(Tensor::zeros({1, 2, 4}, DType::f64), at).to_vector<double>();
  const Numbers expected{std::sin(0.5), std::cos(0.5), std::sin(0.005), std::cos(0.005),
                         std::sin(3),   std::cos(3),   std::sin(0.03),  std::cos(0.03)};
  EXPECT_LT(difference(found, expected), 1e-15);
}

TEST(RandomPositions, AreRefusedByEncodingsThatCannotReadThem) {
  const auto error = [](const char* text, bool whole = true) {
    const RandomPositions random{whole, range};
    return testing::error_of(
        [&] { random.check_read_by(*make_small_model(EncodingChoice::parse(text), "tiled", range), text); });
  };
  for (const char* text : {"absolute", "alibi", "rope", "sinusoidal", "xpos", "cope+rope", "rope+stick-breaking"}) {
    EXPECT_EQ(error(text), "") << text;
  }
  for (const char* text : {"fire", "kerple", "relative", "t5", "transformer-xl", "rope+t5", "0:rope,1:kerple"}) {
    EXPECT_TRUE(contains(error(text), "the number of tokens between query and key")) << text << error(text);
  }
  for (const char* text : {"none", "cope", "fox", "stick-breaking"}) {
    EXPECT_TRUE(contains(error(text), "reads no positions, so random positions have no effect")) << text << error(text);
  }
  EXPECT_EQ(error("rope", false), "");
  EXPECT_TRUE(contains(error("absolute", false), "choose random-positions = integers"));
  EXPECT_EQ(error("absolute", true), "");
}

TEST(RandomPositions, AreSortedDrawsOfTheRange) {
  std::set<Numbers> all;
  Numbers count(static_cast<std::size_t>(range));
  for (std::uint32_t step = 0; step < 500; ++step) {
    for (const bool whole : {true, false}) {
      const RandomPositions random{whole, range};
      const Numbers drawn = random.draw(length, {.seed = 1, .stream = 2, .step = step}).to_vector<double>();
      EXPECT_EQ(drawn, random.draw(length, {.seed = 1, .stream = 2, .step = step}).to_vector<double>());
      EXPECT_TRUE(std::ranges::is_sorted(drawn) && drawn.front() >= 0 && drawn.back() < range);
      EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), static_cast<std::size_t>(length));
      EXPECT_EQ(std::ranges::all_of(drawn, [](double x) { return x == std::floor(x); }), whole);
      if (whole) {
        for (const double position : drawn) ++count[static_cast<std::size_t>(position)];
      }
      all.insert(drawn);
    }
  }
  EXPECT_GT(all.size(), 990U);
  for (const double times : count) EXPECT_NEAR(times, 500.0 * length / range, 50);  // 4 standard deviations
  const RandomPositions as_many{true, length};
  EXPECT_EQ(as_many.draw(length, {}).to_vector<double>(), (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(contains(testing::error_of([&] { as_many.draw(length + 1, {}); }), "7 tokens have no different whole"));
}

}  // namespace tally::random_positions_test
