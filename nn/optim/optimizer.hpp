// Optimisers: SGD with momentum, Adam (arXiv 1412.6980), AdamW (arXiv 1711.05101).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  void step(std::int64_t n, double lr, double gradient_scale);

  // The same in pieces, of which the latter two can be captured (core/graph.hpp):
  // what changes from step to step goes to the parameters' device;
  void prepare(std::int64_t n, double lr, double gradient_scale = 1);
  // the gradients' squared norms, squares [parameters] f64 (0 without a gradient), and the loss [1] decide how they are
  // scaled: to a norm of at most `clip` (0: any), and no update where one of them is not finite;
  void clip(const Tensor& squares, const Tensor& loss, double clip);
  // the kernels.
  virtual void update() = 0;

  // State by name ("blocks.0.attention.query.weight.m"), for checkpoints; the tensors share their elements.
  virtual NamedTensors state() const = 0;

 protected:
  // rows: numbers that an update of one parameter reads (core/update_factors.hpp), `scale` first.
  Optimizer(const OptimizerOptions& options, NamedTensors parameters, std::int64_t row);
  // The row of parameter i, in double.
  virtual std::vector<double> factors(std::size_t i, std::int64_t n, double lr, double gradient_scale) const = 0;
  View factors_of(std::size_t i) const { return factors_.select_view(0, static_cast<std::int64_t>(i)).view(); }

  OptimizerOptions options_;
  NamedTensors parameters_;

 private:
  Tensor factors_;  // [parameters, row], on their device and of their type
};

// The gradients that there are, dense, as kernels take them.
struct DenseGradients {
  std::vector<std::size_t> places;  // of their parameters
  std::vector<Tensor> tensors;
  std::vector<View> views;

  explicit DenseGradients(const NamedTensors& parameters);
};

// Weight decay of one parameter: 0 where decay = matrices leaves it out.
double parameter_decay(const OptimizerOptions& options, const Tensor& parameter);

// Writes each gradient's sum of squares, in fixed order, to squares [parameters] f64 on the parameters' device: 0 where
// there is none.
void squared_gradients(const Tensor& squares, const NamedTensors& parameters);
// Norm of all gradients together.
double gradient_norm(const NamedTensors& parameters);
// Factor that brings a gradient of this norm to at most `clip`: min(1, clip / (norm + 1e-6)); 1 for clip = 0.
double clip_scale(double norm, double clip);

}  // namespace tally
