// Stochastic gradient descent with momentum: g += decay p;  m = momentum m + g;  p -= lr m.
#include "core/device/kernels.hpp"
#include "core/hyperparameters.hpp"
#include "nn/optimizer.hpp"

namespace tally {
namespace {

struct SgdOptions final : OptionsOf<SgdOptions> {
  double momentum = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.real("momentum", momentum, "share of the last step that is kept", 0, below(1));
  }
};

class Sgd final : public Optimizer {
 public:
  // m exists only with momentum.
  Sgd(const OptimizerOptions& options, const SgdOptions& own, NamedTensors parameters)
      : Optimizer(options, std::move(parameters),
                  own.momentum > 0 ? std::vector<std::string>{"m"} : std::vector<std::string>{}),
        momentum_(own.momentum) {}
  bool elementwise() const override { return true; }

 private:
  std::vector<double> row(const Numbers& numbers) const override {
    return row_of(SgdHyperparameters<double>{
        .scale = numbers.gradient_scale, .decay = numbers.weight_decay, .momentum = momentum_, .lr = numbers.lr});
  }

  void apply(const std::vector<Update>& updates) const override {
    std::vector<View> parameters, m, gradients, rows;
    for (const Update& update : updates) {
      parameters.push_back(update.parameter.view());
      m.push_back(momentum_ > 0 ? update.state[0].view() : View());
      gradients.push_back(update.gradient.view());
      rows.push_back(update.row.view());
    }
    kernels(updates.front().parameter.device()).sgd_step(parameters, m, gradients, rows);
  }

  double momentum_;
};

}  // namespace
}  // namespace tally

TALLY_OPTIMIZER(sgd, SgdOptions, Sgd, "descent with momentum");
