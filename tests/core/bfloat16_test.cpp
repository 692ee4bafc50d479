// Numbers of two bytes against rational arithmetic (tests/reference/ops/make_numbers.py), on every device, and in
// files.
#include "core/math/bfloat16.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/core/io_safetensors.hpp"
#include "tests/devices.hpp"

namespace tally::bfloat16_test {

const SafetensorsFile& reference() {
  static const SafetensorsFile file = SafetensorsFile::open(TALLY_SOURCE_DIR "/tests/reference/numbers.safetensors");
  return file;
}

template <class T>
std::vector<T> given(std::string_view name) {
  return reference().read(name).to_vector<T>();
}

std::vector<int> bits_of(const Tensor& tensor) {
  std::vector<int> bits;
  for (const Bfloat16 x : tensor.to(Device{}).to_vector<Bfloat16>()) bits.push_back(x.bits);
  return bits;
}

std::vector<int> expected(std::string_view name) {
  const std::vector<std::int32_t> bits = reference().read(name).to_vector<std::int32_t>();
  return {bits.begin(), bits.end()};
}

class Bfloat16s : public testing::OnDevice {
 protected:
  template <class T>
  Tensor tensor(const std::vector<T>& values) const {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, GetParam());
  }
};
TALLY_ON_EVERY_DEVICE(Bfloat16s);

TEST_P(Bfloat16s, AreTheNearestOfF32AndOfF64) {
  EXPECT_EQ(bits_of(tensor(given<float>("given_f32")).to(DType::bf16)), expected("bf16_f32"));
  EXPECT_EQ(bits_of(tensor(given<double>("given_f64")).to(DType::bf16)), expected("bf16_f64"));
}

TEST_P(Bfloat16s, KeepInfinityAndNaNAndTheirSigns) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bits_of(tensor(std::vector<float>{infinity, -infinity}).to(DType::bf16)),
            (std::vector<int>{0x7f80, 0xff80}));
  EXPECT_EQ(bits_of(tensor(std::vector<double>{infinity, -infinity}).to(DType::bf16)),
            (std::vector<int>{0x7f80, 0xff80}));

  // NaN payloads within the upper half, and outside it.
  for (const std::uint32_t payload : {0x7fc00000U, 0x7f800001U, 0x7fbfffffU, 0x7fffffffU, 0xffc12345U, 0xff800001U}) {
    const int bits = bits_of(tensor(std::vector<float>{std::bit_cast<float>(payload)}).to(DType::bf16))[0];
    EXPECT_EQ(bits & 0x7fc0, 0x7fc0) << payload;
    EXPECT_EQ(bits >> 15, static_cast<int>(payload >> 31)) << payload;
  }
  const std::vector<double> wide{std::nan(""), -std::numeric_limits<double>::quiet_NaN()};
  for (const int bits : bits_of(tensor(wide).to(DType::bf16))) EXPECT_EQ(bits & 0x7fc0, 0x7fc0);
}

TEST_P(Bfloat16s, WidenExactlyFillAndCompareWithZero) {
  std::vector<Bfloat16> all;
  std::vector<float> wide;
  for (std::uint32_t bits = 0x0080; bits < 0x7f80; bits += 37) {  // the normal numbers
    all.push_back(Bfloat16::of_bits(static_cast<std::uint16_t>(bits)));
    wide.push_back(std::bit_cast<float>(bits << 16));
  }
  const Tensor x = tensor(all);
  EXPECT_EQ(x.to(DType::f32).to(Device{}).to_vector<float>(), wide);
  EXPECT_EQ(bits_of(x.to(DType::f64).to(DType::bf16)), bits_of(x));
  EXPECT_EQ(bits_of(Tensor::full({3}, 1.00390625, DType::bf16, GetParam())), std::vector<int>(3, 0x3f80));
  const Tensor few = tensor(std::vector<float>{0.0F, -0.0F, 2.0F}).to(DType::bf16);
  EXPECT_EQ(few.to(DType::boolean).to(Device{}).to_vector<bool>(), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(few.to(DType::i32).to(Device{}).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 2}));
  EXPECT_EQ(few.detached_select(0, 2).item(), 2.0);
}

TEST_F(Safetensors, OfBf16AreReadAndWrittenBitForBit) {
  std::vector<Bfloat16> all;
  for (int bits = 0; bits < 65536; bits += 7) all.push_back(Bfloat16::of_bits(static_cast<std::uint16_t>(bits)));
  const auto count = static_cast<std::int64_t>(all.size());
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path, {{"x", Tensor::from(all, {count})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.entries().front().type, "BF16");
  EXPECT_EQ(file.read("x").dtype(), DType::bf16);
  EXPECT_EQ(bits_of(file.read("x")), bits_of(Tensor::from(all, {count})));
}

TEST_F(Safetensors, FloatsBecomeTheNearestOfTwoBytes) {
  const std::vector<double> numbers = given<double>("given_f64");
  const std::vector<int> halves = expected("f16_f64");
  std::vector<double> finite;  // and within F16
  std::vector<int> finite_halves;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if ((halves[i] & 0x7fff) == 0x7c00 && !std::isinf(numbers[i])) continue;
    finite.push_back(numbers[i]);
    finite_halves.push_back(halves[i]);
  }
  const auto count = static_cast<std::int64_t>(finite.size());
  const NamedTensors tensors{{"ids", Tensor::from(std::vector<std::int32_t>{7, -7}, {2})},
                             {"x", Tensor::from(finite, {count})}};
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path, tensors, {}, FloatsAs::f16);
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.read("ids").to_vector<std::int32_t>(), (std::vector<std::int32_t>{7, -7}));
  EXPECT_EQ(file.find("x")->type, "F16");
  const std::string bytes = bytes_of_file(path).substr(file.find("x")->begin);
  std::vector<int> found;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    found.push_back(static_cast<unsigned char>(bytes[i]) | static_cast<unsigned char>(bytes[i + 1]) << 8);
  }
  EXPECT_EQ(found, finite_halves);

  write_safetensors(path, {{"x", Tensor::from(numbers, {static_cast<std::int64_t>(numbers.size())})}}, {},
                    FloatsAs::bf16);
  EXPECT_EQ(bits_of(SafetensorsFile::open(path).read("x")), expected("bf16_f64"));
}

TEST_F(Safetensors, F16RefusesWhatItDoesNotReach) {
  const std::string path = folder_.file("a.safetensors");
  const Tensor large = Tensor::from(std::vector<float>{1.0F, 65520.0F}, {2});
  EXPECT_ERROR(write_safetensors(path, {{"large", large}}, {}, FloatsAs::f16),
               "tensor 'large' has an element of 65520, and F16 ends at 65504");
}

}  // namespace tally::bfloat16_test
