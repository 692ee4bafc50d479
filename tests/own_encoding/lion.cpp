// Steps by signs (Lion, arXiv 2302.06675):  x -= lr (sign(b1 m + (1-b1) g) + decay x),  m = b2 m + (1-b2) g
#include "autograd/ops.hpp"
#include "nn/optimizer.hpp"

namespace tally {
namespace {

struct LionOptions final : OptionsOf<LionOptions> {
  double beta1 = 0.9, beta2 = 0.99;
  void visit(OptionVisitor& visitor) override {
    visitor.real("beta1", beta1, "share of the mean in a step", 0, below(1));
    visitor.real("beta2", beta2, "share of the mean that is kept", 0, below(1));
  }
};

class Lion final : public Optimizer {
 public:
  Lion(const OptimizerOptions& options, const LionOptions& own, NamedTensors parameters)
      : Optimizer(options, std::move(parameters), {"m"}), own_(own) {}  // m: one tensor kept for each parameter

 private:
  std::vector<double> row(const Numbers& numbers) const override {
    return {numbers.gradient_scale, numbers.lr, numbers.weight_decay};
  }
  void apply(const std::vector<Update>& updates) const override {
    for (const Update& u : updates) {
      const Tensor g = u.gradient * u.number(0), &m = u.state[0];
      const Tensor mean = own_.beta1 * m + (1 - own_.beta1) * g;
      const Tensor sign = mean / maximum(abs(mean), Tensor::full({}, 1e-30, mean.dtype(), mean.device()));
      u.assign(u.parameter, u.parameter - u.number(1) * (sign + u.number(2) * u.parameter));
      u.assign(u.state[0], own_.beta2 * m + (1 - own_.beta2) * g);
    }
  }

  LionOptions own_;
};

}  // namespace
}  // namespace tally

TALLY_OPTIMIZER(lion, LionOptions, Lion, "steps by signs (arXiv 2302.06675)");
