#include "nn/encoding/slopes.hpp"

#include <bit>
#include <cmath>

namespace tally {

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  }
  for (std::int64_t h = 1; h <= heads - power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(2 * h - 1) / static_cast<double>(2 * power)));
  }
  return slopes;
}

}  // namespace tally
