// Ids and targets outside the vocabulary: an error if they can be read, NaN if that would mean waiting for the device.
#include "nn/layers/embedding.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "tests/devices.hpp"
#include "tests/error_of.hpp"

namespace tally::embedding_test {

class Ids : public testing::OnDevice {
 protected:
  static Tensor ids(const std::vector<std::int32_t>& values) {
    return Tensor::from(values, {std::ssize(values)}, Device{});
  }
};
TALLY_ON_EVERY_DEVICE(Ids);

class IdsOnADevice : public Ids {};
TALLY_ON_KERNEL_DEVICES(IdsOnADevice);

TEST_P(Ids, ThatAreOnTheCpuAreRefusedOutsideTheVocabulary) {
  const Embedding table(Initializer(0, StartValues::gpt2, DType::f32, GetParam()), 5, 3);
  EXPECT_EQ(table.forward(ids({0, 4})).device(), GetParam());
  for (const std::int32_t id : {5, -1}) {
    const std::string refused = testing::error_of([&] { table.forward(ids({0, 4, id})); });
    for (const std::string& part : {formatted("id {}", id), std::string("element 2"), std::string("0..4")}) {
      EXPECT_NE(refused.find(part), std::string::npos) << part << " not in: " << refused;
    }
  }
}

TEST_P(IdsOnADevice, GiveRowsThatAreNoNumbersOutsideTheVocabulary) {
  Tensor table = Tensor::full({5, 3}, 2, DType::f32, GetParam());
  set_requires_grad(table);
  const Tensor y = embedding(table, ids({4, 5, -1, 0}).to(GetParam()));
  const std::vector<float> found = y.to_vector<float>();
  for (std::size_t n = 0; n < found.size(); ++n) {
    const bool unknown = n / 3 == 1 || n / 3 == 2;
    EXPECT_EQ(std::isnan(found[n]), unknown) << n;
  }
  backward(y, Tensor::full({4, 3}, 1, DType::f32, GetParam()));
  EXPECT_EQ(gradient(table).to_vector<float>(), (std::vector<float>{1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST_P(IdsOnADevice, OfTargetsGiveALossThatIsNoNumberOutsideTheVocabulary) {
  const Tensor logits = Tensor::zeros({2, 4}, DType::f32, GetParam());
  const Tensor mask = Tensor::full({2}, 1, DType::boolean, GetParam());
  const Tensor weight = Tensor::scalar(0.5, DType::f32, GetParam());
  EXPECT_NEAR(cross_entropy(logits, ids({3, 0}).to(GetParam()), mask, weight).item(), std::log(4.0), 1e-6);
  for (const std::int32_t target : {4, -1}) {
    EXPECT_TRUE(std::isnan(cross_entropy(logits, ids({3, target}).to(GetParam()), mask, weight).item())) << target;
  }
}

}  // namespace tally::embedding_test
