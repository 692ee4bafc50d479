// Dropout (Srivastava et al. 2014): while training an element is 0 with probability `rate` and x / (1 - rate)
// otherwise.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/math/random.hpp"
#include "nn/forward_context.hpp"
#include "nn/layers/init.hpp"

namespace tally {

// One place in the model with dropout. Its mask is a pure function of (seed, place, step, element).
class Dropout {
 public:
  // The random stream is stream_of("dropout/<path>"), with the path that a parameter of this name would have.
  Dropout(const Initializer& start, std::string_view name, double rate);
  // x [B, ...]
  Tensor operator()(const Tensor& x, const ForwardContext& pass) const;
  // For operations with built-in dropout: the rate of this pass, 0 unless training, and the stream of the mask, which
  // has `numbers` numbers for each sequence.
  double rate(const ForwardContext& pass) const { return pass.training ? rate_ : 0; }
  RandomStream stream(const ForwardContext& pass, std::int64_t numbers) const {
    return pass.step.stream(stream_, numbers);
  }

 private:
  std::uint32_t stream_;
  double rate_;
};

}  // namespace tally
