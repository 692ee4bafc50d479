#include <cstdint>
#include <vector>

#include "core/math/random.hpp"

std::vector<double> dropped(const std::vector<double>& x, std::uint64_t first, double rate,
                            const tally::RandomStream& stream) {
  std::vector<double> y;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const double uniform = tally::uniform_from_bits(stream.bits(first + n));
    y.push_back(uniform < rate ? 0 : x[n] / (1 - rate));
  }
  return y;
}
