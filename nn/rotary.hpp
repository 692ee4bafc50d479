// Rotation by position, shared by RoPE and its kin: pair i of x at position t, from 0, as a complex number (a, b)
// becomes
//   (a, b) * factor * exp((growth_i + angle_i sqrt(-1)) t)
// that is, it is turned by t angle_i and grows by growth_i a token. Pairs are the dims (i, i + r/2) in layout half and
// (2i, 2i+1) in layout interleaved, i = 0 .. r/2-1; dims from r on are left alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

struct RotaryPlane {
  double angle = 0;
  double growth = 0;
};

class Rotary {
 public:
  // Tables are kept for positions below `length`; for a longer sequence they are made anew on each call.
  Rotary(std::vector<RotaryPlane> planes, double factor, bool interleaved, std::int64_t length, DType dtype,
         Device device);
  // x [B, H, T, d] of the tokens first .. first + T - 1 -> the same shape; d is at least r = 2 planes
  Tensor rotate(const Tensor& x, std::int64_t first) const;

 private:
  struct Tables {
    Tensor cosine, sine;  // [T, r/2], times what multiplies the pair
  };
  Tables make_tables(std::int64_t length, DType dtype, Device device) const;

  std::vector<RotaryPlane> planes_;
  double factor_;
  bool interleaved_;
  Tables tables_;
};

// θ_i = base^(-2i/r), i = 0 .. r/2-1
std::vector<RotaryPlane> rotary_planes(std::int64_t dims, double base);
// What an option says of each plane: "1/1.5/2", since a comma would part the values of a grid (tasks/runner/grid.hpp);
// none for "". Throws Error of the encoding, naming the option, for what is no number above 0.
std::vector<double> plane_factors(std::string_view encoding, std::string_view option, std::string_view text);

}  // namespace tally
