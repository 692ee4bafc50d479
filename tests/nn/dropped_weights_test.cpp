// A rate just above the number of a weight drops it, one just below keeps it, in tiled attention as in the composed
// form.
#include <gtest/gtest.h>

#include "tests/nn/score_cases.hpp"

namespace tally::dropped_weights_test {

class DroppedWeights : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(DroppedWeights);

TEST_P(DroppedWeights, AreThoseBelowTheRate) {
  const testing::Sizes sizes{1, 1, 20, 4, 4};
  const testing::ShapeCase plain = testing::shape_cases().front();
  const ForwardContext pass{.training = true, .step = {.seed = 3, .number = 5}};  // as compute() has it
  const RandomStream stream = Dropout(Initializer(0, StartValues::gpt2), "weights", 0.5).stream(pass, 1);
  int tried = 0;
  for (std::uint64_t weight = 19 * 20; weight < 20 * 20; ++weight) {  // the last row attends to all keys
    const double number = static_cast<double>(uniform_from_bits(stream.bits(weight)));
    if (number < 0.1 || number > 0.6) continue;
    ++tried;
    for (const double rate : {number + 0x1p-25, number}) {
      SCOPED_TRACE(formatted("weight {}, rate {}", weight, rate));
      testing::expect_equal(testing::compute(plain, sizes, DType::f64, true, rate),
                            testing::compute(plain, sizes, DType::f64, false, rate));
    }
  }
  EXPECT_GT(tried, 3);
}

}  // namespace tally::dropped_weights_test
