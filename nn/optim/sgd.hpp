// Stochastic gradient descent with momentum: g += decay p;  m = momentum m + g;  p -= lr m.
#pragma once

#include <vector>

#include "nn/optim/optimizer.hpp"

namespace tally {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, NamedTensors parameters);
  void step(std::int64_t n, double lr, double gradient_scale) override;
  NamedTensors state() const override;  // <path>.m; nothing without momentum

 private:
  OptimizerOptions options_;
  NamedTensors parameters_;
  std::vector<Tensor> m_;  // undefined tensors without momentum
};

}  // namespace tally
