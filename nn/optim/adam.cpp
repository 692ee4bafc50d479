#include "nn/optim/adam.hpp"

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "core/update_factors.hpp"

namespace tally {

Adam::Adam(const OptimizerOptions& options, NamedTensors parameters)
    : Optimizer(options, std::move(parameters), AdamFactors<double>::count) {
  for (const auto& [path, parameter] : parameters_) {
    m_.push_back(Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device()));
    v_.push_back(Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device()));
  }
}

std::vector<double> Adam::factors(std::size_t i, std::int64_t n, double lr, double gradient_scale) const {
  return row_of(adam_factors({.lr = lr,
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .eps = options_.eps,
                              .weight_decay = parameter_decay(options_, parameters_[i].second),
                              .gradient_scale = gradient_scale,
                              .decoupled = options_.name == "adamw",
                              .step = n}));
}

void Adam::update() {
  const DenseGradients gradients(parameters_);
  if (gradients.places.empty()) return;
  std::vector<View> parameters, m, v, factors;
  for (const std::size_t i : gradients.places) {
    const Tensor& parameter = parameters_[i].second;
    parameters.push_back(parameter.view());
    m.push_back(m_[i].view());
    v.push_back(v_[i].view());
    factors.push_back(factors_of(i));
    for (const Tensor& changed : {parameter, m_[i], v_[i]}) changed.storage()->bump_version();
  }
  kernels(parameters_.front().second.device()).adam_step(parameters, m, v, gradients.views, factors);
}

NamedTensors Adam::state() const {
  NamedTensors all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    all.emplace_back(parameters_[i].first + ".m", m_[i]);
    all.emplace_back(parameters_[i].first + ".v", v_[i]);
  }
  return all;
}

}  // namespace tally
