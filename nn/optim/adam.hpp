// Adam (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1) and AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101):
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g²;  p -= lr (m / (1-b1^n)) / (sqrt(v / (1-b2^n)) + eps)
// Weight decay: AdamW p *= 1 - lr decay before that; Adam g += decay p.
#pragma once

#include <vector>

#include "nn/optimizer.hpp"

namespace tally {

struct AdamOptions final : OptionsOf<AdamOptions> {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;

  void visit(OptionVisitor& visitor) override {
    visitor.real("beta1", beta1, "decay rate of the mean of gradients", 0, below(1));
    visitor.real("beta2", beta2, "decay rate of the mean of squared gradients", 0, below(1));
    // At 1 the corrections 1 - b^n are 0. In f32 the square of a gradient below 1e-22 is 0, and the update divides by
    // eps only.
    visitor.real("eps", eps, "added to the root of the second moment", 1e-20, 1);
  }
};

class Adam : public Optimizer {
 public:
  enum class Decay { in_gradient, decoupled };
  Adam(const OptimizerOptions& options, const AdamOptions& own, NamedTensors parameters,
       Decay decay = Decay::in_gradient)
      : Optimizer(options, std::move(parameters), {"m", "v"}), own_(own), decay_(decay) {}
  bool elementwise() const override { return true; }

 protected:
  std::vector<double> row(const Numbers& numbers) const override;
  void apply(const std::vector<Update>& updates) const override;

 private:
  AdamOptions own_;
  Decay decay_;
};

}  // namespace tally
