// Optimisers: SGD with momentum, Adam (arXiv 1412.6980), AdamW (arXiv 1711.05101).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/module.hpp"
#include "nn/options.hpp"

namespace tally {

struct OptimizerOptions final : OptionsOf<OptimizerOptions> {
  std::string name = "adamw";  // adamw, adam, sgd
  double lr = 1e-3;
  double momentum = 0;  // sgd
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::string decay = "all";  // all, matrices: parameters of rank 2 or more, embeddings and encoding tables included
  double clip = 0;            // gradient norm; 0 for none
  std::string schedule = "constant";  // constant, linear, cosine: down to 0 after the last step
  std::int64_t warmup = 0;            // steps

  void visit(OptionVisitor& visitor) override;
};

// Learning rate of step n = 1 .. steps: lr * min(n/warmup, r), with r = 1 (constant), (steps+1-n)/(steps+1-warmup)
// (linear), or (1 + cos(pi (n-warmup)/(steps+1-warmup)))/2 (cosine, after the warm-up).
double learning_rate(const OptimizerOptions& options, std::int64_t n, std::int64_t steps);

class Optimizer {
 public:
  static std::unique_ptr<Optimizer> make(const OptimizerOptions& options, NamedTensors parameters);
  virtual ~Optimizer() = default;

  // One update from the gradients; `n` counts from 1. Parameters without a gradient are left alone. Gradients are
  // multiplied by gradient_scale first (clipping).
  virtual void step(std::int64_t n, double lr, double gradient_scale) = 0;
  // State by name ("blocks.0.attention.query.weight.m"), for checkpoints; the tensors share their elements.
  virtual NamedTensors state() const = 0;
};

// Weight decay of one parameter: 0 where decay = matrices leaves it out.
double parameter_decay(const OptimizerOptions& options, const Tensor& parameter);

// Norm of all gradients together, in double, fixed order.
double gradient_norm(const NamedTensors& parameters);
// Factor that brings a gradient of this norm to at most `clip`: min(1, clip / (norm + 1e-6)); 1 for clip = 0.
double clip_scale(double norm, double clip);

}  // namespace tally
