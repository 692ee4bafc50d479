// Stochastic gradient descent with momentum: g += decay p;  m = momentum m + g;  p -= lr m.
#pragma once

#include <vector>

#include "nn/optim/optimizer.hpp"

namespace tally {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, NamedTensors parameters);
  void update() override;
  NamedTensors state() const override;  // <path>.m; nothing without momentum

 private:
  std::vector<double> factors(std::size_t i, std::int64_t n, double lr, double gradient_scale) const override;

  std::vector<Tensor> m_;  // undefined tensors without momentum
};

}  // namespace tally
