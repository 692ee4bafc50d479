#include "nn/rotary.hpp"

#include <cmath>
#include <utility>

#include "autograd/ops.hpp"

namespace tally {

Rotary::Rotary(std::vector<RotaryPlane> planes, double factor, bool interleaved, std::int64_t length, DType dtype,
               Device device)
    : planes_(std::move(planes)),
      factor_(factor),
      interleaved_(interleaved),
      tables_(make_tables(length, dtype, device)) {}

Tensor Rotary::rotate(const Tensor& x, std::int64_t first) const {
  const std::int64_t end = first + x.size(2);
  const Tables tables = end <= tables_.cosine.size(0) ? tables_ : make_tables(end, x.dtype(), x.device());
  return rotate_pairs(x, tables.cosine.slice_view(0, first, end), tables.sine.slice_view(0, first, end), interleaved_);
}

Rotary::Tables Rotary::make_tables(std::int64_t length, DType dtype, Device device) const {
  std::vector<double> cosine, sine;
  for (std::int64_t t = 0; t < length; ++t) {
    for (const RotaryPlane& plane : planes_) {
      const double position = static_cast<double>(t), size = factor_ * std::exp(position * plane.growth);
      cosine.push_back(size * std::cos(position * plane.angle));
      sine.push_back(size * std::sin(position * plane.angle));
    }
  }
  const Shape shape{length, static_cast<std::int64_t>(planes_.size())};
  return {Tensor::from(cosine, shape, device).to(dtype), Tensor::from(sine, shape, device).to(dtype)};
}

std::vector<RotaryPlane> rotary_planes(std::int64_t dims, double base) {
  std::vector<RotaryPlane> planes;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    planes.push_back({.angle = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims))});
  }
  return planes;
}

}  // namespace tally
