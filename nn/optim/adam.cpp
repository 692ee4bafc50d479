#include "nn/optim/adam.hpp"

#include "core/device/kernels.hpp"
#include "core/hyperparameters.hpp"

namespace tally {

std::vector<double> Adam::row(const Numbers& numbers) const {
  return row_of(adam_hyperparameters({.lr = numbers.lr,
                                      .beta1 = own_.beta1,
                                      .beta2 = own_.beta2,
                                      .eps = own_.eps,
                                      .weight_decay = numbers.weight_decay,
                                      .gradient_scale = numbers.gradient_scale,
                                      .decoupled = decay_ == Decay::decoupled,
                                      .step = numbers.step}));
}

void Adam::apply(const std::vector<Update>& updates) const {
  std::vector<View> parameters, m, v, gradients, rows;
  for (const Update& update : updates) {
    parameters.push_back(update.parameter.view());
    m.push_back(update.state[0].view());
    v.push_back(update.state[1].view());
    gradients.push_back(update.gradient.view());
    rows.push_back(update.row.view());
  }
  kernels(updates.front().parameter.device()).adam_step(parameters, m, v, gradients, rows);
}

}  // namespace tally

TALLY_OPTIMIZER(adam, AdamOptions, Adam, "running means of gradient and square (arXiv 1412.6980)");
