// Adam (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1) and AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101):
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g²;  p -= lr (m / (1-b1^n)) / (sqrt(v / (1-b2^n)) + eps)
// Weight decay: AdamW p *= 1 - lr decay before that; Adam g += decay p.
#pragma once

#include <vector>

#include "nn/optim/optimizer.hpp"

namespace tally {

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, NamedTensors parameters);
  void update() override;
  NamedTensors state() const override;  // <path>.m, <path>.v

 private:
  std::vector<double> factors(std::size_t i, std::int64_t n, double lr, double gradient_scale) const override;

  std::vector<Tensor> m_, v_;
};

}  // namespace tally
