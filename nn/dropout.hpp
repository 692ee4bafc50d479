// Dropout (Srivastava et al. 2014): while training an element is 0 with probability `rate` and x / (1 - rate)
// otherwise.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/random.hpp"
#include "nn/init.hpp"
#include "nn/pass.hpp"

namespace tally {

// One site in the model where dropout acts. Its mask is a pure function of (seed, site, step, element).
class Dropout {
 public:
  // The site's random stream is that of "dropout/<path>", path as of a parameter of this name.
  Dropout(const Initializer& start, std::string_view name, double rate);
  // x [B, ...]
  Tensor operator()(const Tensor& x, const Pass& pass) const;
  // For operations that drop by themselves: the rate of this pass, 0 unless training, and the stream of its mask, which
  // has so many numbers for each sequence.
  double rate(const Pass& pass) const { return pass.training ? rate_ : 0; }
  RandomStream stream(const Pass& pass, std::int64_t numbers) const { return pass.step.stream(stream_, numbers); }

 private:
  std::uint32_t stream_;
  double rate_;
};

}  // namespace tally
