#include "nn/encoding/rotary.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding/constants.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

Tensor of_planes(const std::vector<RotaryPlane>& planes, double RotaryPlane::*number, Device device) {
  std::vector<double> numbers;
  for (const RotaryPlane& plane : planes) numbers.push_back(plane.*number);
  return Tensor::from(numbers, {1, std::ssize(planes)}, device);
}

}  // namespace

Rotary::Rotary(std::vector<RotaryPlane> planes, double factor, bool interleaved, std::int64_t length, DType dtype,
               Device device)
    : planes_(std::move(planes)),
      factor_(factor),
      interleaved_(interleaved),
      angles_(of_planes(planes_, &RotaryPlane::angle, device)),
      growths_(of_planes(planes_, &RotaryPlane::growth, device)),
      tables_(make_tables(length, dtype, device)) {}

Tensor Rotary::rotate(const Tensor& x, const AttentionInput& in) const {
  if (in.has_random_positions()) {
    const Tables drawn = tables_at(in.positions());
    return rotate_pairs(x, drawn.cosine, drawn.sine, interleaved_);
  }
  const std::int64_t first = in.first, end = in.keys();
  const Tables tables = end <= tables_.cosine.size(0) ? tables_ : make_tables(end, tables_.cosine.dtype(), x.device());
  return rotate_pairs(x, tables.cosine.detached_slice(0, first, end), tables.sine.detached_slice(0, first, end),
                      interleaved_);
}

Rotary::Tables Rotary::make_tables(std::int64_t length, DType dtype, Device device) const {
  const auto table = [&](double (*turned)(double angle)) {
    return table_of(length, std::ssize(planes_), dtype, device, [&](std::int64_t t, std::int64_t pair) {
      const RotaryPlane& plane = planes_[static_cast<std::size_t>(pair)];
      const double position = static_cast<double>(t), size = factor_ * std::exp(position * plane.growth);
      return size * turned(position * plane.angle);
    });
  };
  return {table(std::cos), table(std::sin)};
}

Rotary::Tables Rotary::tables_at(const Tensor& positions) const {
  const Tensor position = unsqueeze(positions, 1), turn = position * angles_, size = exp(position * growths_) * factor_;
  const DType dtype = tables_.cosine.dtype();
  return {cast(size * cos(turn), dtype), cast(size * sin(turn), dtype)};
}

std::int64_t rotated_dims(std::string_view encoding, std::int64_t option, std::int64_t head_width) {
  check(option <= head_width, encoding, "rotary-dims {} is more than the head width {}", option, head_width);
  return option == 0 ? head_width : option;
}

std::vector<double> rotary_angles(std::string_view encoding, std::int64_t dims, double base) {
  check(dims % 2 == 0, encoding, "planes need an even number of dims, but {} are to be rotated", dims);
  std::vector<double> angles;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    angles.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return angles;
}

std::vector<RotaryPlane> rotary_planes(std::string_view encoding, std::int64_t dims, double base) {
  std::vector<RotaryPlane> planes;
  for (const double angle : rotary_angles(encoding, dims, base)) planes.push_back({.angle = angle});
  return planes;
}

std::vector<double> plane_factors(std::string_view encoding, std::string_view option, std::string_view text) {
  std::vector<double> numbers;
  if (text.empty()) return numbers;
  for (const std::string_view part : split(text, '/')) {
    double number = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool whole = read.ec == std::errc() && read.ptr == part.data() + part.size();
    check(whole && number > 0 && number <= std::numeric_limits<double>::max(), encoding,
          "{} = '{}' has '{}' where a number above 0 is to stand; write 1/1.5/2, one for each plane", option, text,
          part);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace tally
