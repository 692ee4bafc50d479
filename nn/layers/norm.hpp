// Norms over the last axis, with the default eps or a given one:
//   layer  y = (x - mean) / sqrt(variance + eps) * weight + bias   arXiv 1607.06450, eps 1e-5
//   rms    y = x / sqrt(mean(x²) + eps) * weight                   arXiv 1910.07467, eps 1e-6
#pragma once

#include <memory>
#include <string_view>

#include "autograd/ops.hpp"
#include "nn/layers/init.hpp"
#include "nn/module.hpp"

namespace tally {

class Norm : public Module {
 public:
  // x [..., D] -> the same shape
  virtual Tensor forward(const Tensor& x, OutputPrecision precision = OutputPrecision::full) const = 0;
  // kind: "layer" or "rms". eps: 0 for the default.
  static std::unique_ptr<Norm> make(std::string_view kind, const Initializer& start, std::int64_t width,
                                    double eps = 0);
};

// Parameters: weight [D] ones, bias [D] zeros.
class LayerNorm final : public Norm {
 public:
  LayerNorm(const Initializer& start, std::int64_t width, double eps = 1e-5);
  Tensor forward(const Tensor& x, OutputPrecision precision) const override;

 private:
  Tensor weight_, bias_;
  double eps_;
};

// Parameters: weight [D] ones.
class RmsNorm final : public Norm {
 public:
  RmsNorm(const Initializer& start, std::int64_t width, double eps = 1e-6);
  Tensor forward(const Tensor& x, OutputPrecision precision) const override;

 private:
  Tensor weight_;
  double eps_;
};

}  // namespace tally
