// Properties of single encodings, in addition to the tests of all (tests/nn/encoding_test.cpp) and their reference
// values.
#include <gtest/gtest.h>

#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::position_test {

using testing::AttentionSizes;
using testing::make_encoding;
using testing::normal_tensor;

std::unique_ptr<Encoding> make(std::string_view text, const AttentionSizes& sizes = {}) {
  return make_encoding(EncodingChoice::parse(text), sizes, [](std::string_view name, const Shape& shape, const Fill&) {
    return normal_tensor(name, shape);
  });
}

class Kerple : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Kerple);
class AddedPositions : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(AddedPositions);

// Parameters that updates push out of their range come back into it, at once and in every layer; others stay.
TEST_P(Kerple, ParametersStayInTheirRange) {
  ModelOptions options;
  options.layers = 2;
  options.width = 8;
  options.heads = 2;
  for (const auto& [kernel, largest] : {std::pair{"log", 100.0}, std::pair{"power", 2.0}}) {
    SCOPED_TRACE(kernel);
    EncodingChoice choice = EncodingChoice::parse("kerple+rope");
    choice.set_option("kernel", kernel);
    Transformer model(options, choice, 5, 8, 1, DType::f32, default_device());
    for (auto& [path, parameter] : model.parameters()) {
      parameter.copy_from(Tensor::from(std::vector<float>{-3}, {1}).detached_broadcast("test", parameter.shape()));
      if (path.find("kerple") != std::string::npos) parameter.detached_select(0, 0).copy_from(Tensor::scalar(50));
    }
    model.project_parameters();
    int seen = 0;
    for (const auto& [path, parameter] : model.parameters()) {
      const std::vector<float> values = parameter.to_vector<float>();
      if (path.find("kerple") == std::string::npos) {
        EXPECT_EQ(values.front(), -3) << path;
        continue;
      }
      ++seen;
      EXPECT_FLOAT_EQ(values[0], path.ends_with("r2") && largest < 50 ? static_cast<float>(largest) : 50) << path;
      EXPECT_FLOAT_EQ(values[1], 0.01F) << path;
    }
    EXPECT_EQ(seen, 4);
  }
}

TEST(Xpos, RefusesPlacesWhoseScalesLeaveTheNumbers) {
  const auto encoding = make("xpos");
  EXPECT_NO_THROW(encoding->check_length(200'000));
  EXPECT_THROW(encoding->check_length(300'000), Error);
}

// Tokens with arbitrary positions: each gets the numbers of its position.
TEST_P(AddedPositions, AreThoseWhereTokensStand) {
  const Tensor x = normal_tensor("x", {2, 3, 8});
  const std::vector<std::int32_t> places{5, 0, 2, 1, 1, 6};
  for (const EncodingEntry* entry : encoding_registry()) {
    if (!entry->traits.embeds) continue;
    SCOPED_TRACE(entry->name);
    const auto encoding = make(entry->name, {.max_length = 7});
    const Tensor found =
        encoding->embed(x, {.each = Tensor::from(places, {2, 3}, default_device()), .end = 7}).to(Device{});
    for (std::int64_t n = 0; n < 6; ++n) {
      const std::int64_t b = n / 3, t = n % 3;
      const Tensor one = x.detached_slice(0, b, b + 1).detached_slice(1, t, t + 1).to_dense();
      const Tensor expected = encoding->embed(one, {.first = places[static_cast<std::size_t>(n)]});
      EXPECT_EQ(found.detached_slice(0, b, b + 1).detached_slice(1, t, t + 1).to_vector<double>(),
                expected.to(Device{}).to_vector<double>())
          << n;
    }
  }
}

}  // namespace tally::position_test
