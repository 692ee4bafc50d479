#include "nn/optim/sgd.hpp"

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "core/update_factors.hpp"

namespace tally {

Sgd::Sgd(const OptimizerOptions& options, NamedTensors parameters)
    : Optimizer(options, std::move(parameters), SgdFactors<double>::count), m_(parameters_.size()) {
  if (options_.momentum == 0) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    m_[i] = Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device());
  }
}

std::vector<double> Sgd::factors(std::size_t i, std::int64_t /*n*/, double lr, double gradient_scale) const {
  return row_of(SgdFactors<double>{.scale = gradient_scale,
                                   .decay = parameter_decay(options_, parameters_[i].second),
                                   .momentum = options_.momentum,
                                   .lr = lr});
}

void Sgd::update() {
  const DenseGradients gradients(parameters_);
  if (gradients.places.empty()) return;
  std::vector<View> parameters, m, factors;
  for (const std::size_t i : gradients.places) {
    parameters.push_back(parameters_[i].second.view());
    m.push_back(m_[i].view());
    factors.push_back(factors_of(i));
    parameters_[i].second.storage()->bump_version();
    if (m_[i].defined()) m_[i].storage()->bump_version();
  }
  kernels(parameters_.front().second.device()).sgd_step(parameters, m, gradients.views, factors);
}

NamedTensors Sgd::state() const {
  NamedTensors all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (m_[i].defined()) all.emplace_back(parameters_[i].first + ".m", m_[i]);
  }
  return all;
}

}  // namespace tally
