// Tensors that move between host and device in one transfer.
#include "core/parcel.hpp"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tests/devices.hpp"

namespace tally {
namespace {

class Parcels : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Parcels);

TEST_P(Parcels, CarryEveryPartThereAndBack) {
  Parcel parcel({{{3}, DType::boolean}, {{2, 2}, DType::f64}, {{0}, DType::i32}, {{5}, DType::i64}}, GetParam());
  ASSERT_TRUE(parcel.defined());
  EXPECT_EQ(parcel.on_device(1).to_vector<double>(), std::vector<double>(4, 0.0));
  constexpr bool flags[] = {true, false, true};
  parcel.on_host(0).copy_from(Tensor::from(std::span<const bool>(flags), {3}));
  parcel.on_host(1).copy_from(Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}));
  parcel.on_host(3).fill(7);
  const std::uint64_t version = parcel.on_device(1).version();
  parcel.send();
  EXPECT_GT(parcel.on_device(1).version(), version) << "a value that backward has kept is seen to have changed";
  for (std::size_t part = 0; part < 4; ++part) EXPECT_EQ(parcel.on_device(part).device(), GetParam());
  EXPECT_EQ(parcel.on_device(0).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(parcel.on_device(1).to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(parcel.on_device(3).to_vector<std::int64_t>(), std::vector<std::int64_t>(5, 7));

  parcel.on_device(1).fill(-1);
  parcel.fetch();
  EXPECT_EQ(parcel.on_host(1).to_vector<double>(), std::vector<double>(4, -1.0));
  EXPECT_EQ(parcel.on_host(0).to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

TEST_P(Parcels, MayBeEmpty) {
  EXPECT_FALSE(Parcel().defined());
  Parcel parcel({{{0}, DType::f32}}, GetParam());
  parcel.send();
  parcel.fetch();
  EXPECT_EQ(parcel.on_device(0).numel(), 0);
}

}  // namespace
}  // namespace tally
