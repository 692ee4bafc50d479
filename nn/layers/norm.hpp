// Norms over the last axis, with the default eps or a given one:
//   layer  y = (x - mean) / sqrt(variance + eps) * weight + bias   arXiv 1607.06450, eps 1e-5
//   rms    y = x / sqrt(mean(x²) + eps) * weight                   arXiv 1910.07467, eps 1e-6
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/ops.hpp"
#include "nn/layers/init.hpp"
#include "nn/module.hpp"

namespace tally {

// Parameters: weight [D] ones; with kind layer, bias [D] zeros.
class Norm final : public Module {
 public:
  // kind: "layer" or "rms". eps: 0 for the default.
  Norm(const Initializer& start, std::string_view kind, std::int64_t width, double eps = 0);
  // x [..., D] -> the same shape
  Tensor forward(const Tensor& x, OutputPrecision precision = OutputPrecision::full) const;

 private:
  Tensor weight_, bias_;  // bias_: undefined for rms
  double eps_;
};

}  // namespace tally
