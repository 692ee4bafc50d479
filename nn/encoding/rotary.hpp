// Rotation by position, shared by RoPE and its variants: pair i of x at position t, from 0, as a complex number (a, b)
// becomes
//   (a, b) * factor * exp((growth_i + angle_i sqrt(-1)) t).
// So it is rotated by t angle_i and grows by growth_i per token. Pairs are the dims (i, i + r/2) in layout half and
// (2i, 2i+1) in layout interleaved, i = 0 .. r/2-1; dims from r on are not changed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

struct AttentionInput;

struct RotaryPlane {
  double angle = 0;
  double growth = 0;
};

class Rotary {
 public:
  // Tables are cached for positions below `length`; for a longer sequence each call computes them again.
  Rotary(std::vector<RotaryPlane> planes, double factor, bool interleaved, std::int64_t length, DType dtype,
         Device device);
  // x [B, H, T, d] of these tokens -> the same shape; d is at least r = 2 planes
  Tensor rotate(const Tensor& x, const AttentionInput& in) const;

 private:
  struct Tables {
    Tensor cosine, sine;  // [T, r/2], times the factor of the pair
  };
  Tables make_tables(std::int64_t length, DType dtype, Device device) const;
  Tables tables_at(const Tensor& positions) const;

  std::vector<RotaryPlane> planes_;
  double factor_;
  bool interleaved_;
  Tensor angles_, growths_;  // of the planes, f64 [1, r/2]
  Tables tables_;
};

// The number r of rotated dims, from an option where 0 means all. Throws Error of the encoding if a head has fewer.
std::int64_t rotated_dims(std::string_view encoding, std::int64_t option, std::int64_t head_width);
// θ_i = base^(-2i/r), i = 0 .. r/2-1. Throws Error of the encoding if r is odd.
std::vector<double> rotary_angles(std::string_view encoding, std::int64_t dims, double base);
std::vector<RotaryPlane> rotary_planes(std::string_view encoding, std::int64_t dims, double base);
// The values of an option, one per plane: "1/1.5/2", since a comma would separate the values of a grid
// (tasks/command_line/config_options.hpp); none for "". Throws Error of the encoding, naming the option, unless all are
// numbers above 0.
std::vector<double> plane_factors(std::string_view encoding, std::string_view option, std::string_view text);

}  // namespace tally
