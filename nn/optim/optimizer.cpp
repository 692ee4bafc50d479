#include "nn/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "core/workspace.hpp"
#include "nn/optim/adam.hpp"
#include "nn/optim/sgd.hpp"

namespace tally {

void OptimizerOptions::visit(OptionVisitor& visitor) {
  visitor.choice("name", name, {"adamw", "adam", "sgd"}, "update rule");
  visitor.real("lr", lr, "peak learning rate", 0);
  visitor.real("momentum", momentum, "of sgd", 0, 1);
  visitor.real("beta1", beta1, "of adam and adamw: decay of the mean of gradients", 0, 1);
  visitor.real("beta2", beta2, "of adam and adamw: decay of the mean of squared gradients", 0, 1);
  visitor.real("eps", eps, "of adam and adamw: added to the root", 0);
  visitor.real("weight-decay", weight_decay, "decoupled in adamw, added to the gradient in adam and sgd", 0);
  visitor.choice("decay", decay, {"all", "matrices"}, "what decays: all parameters, or those of rank 2 or more");
  visitor.real("clip", clip, "largest norm of all gradients together; 0 for no limit", 0);
  visitor.choice("schedule", schedule, {"constant", "linear", "cosine"}, "of the learning rate after the warm-up");
  visitor.integer("warmup", warmup, "steps of linear warm-up");
}

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerOptions& options, NamedTensors parameters) {
  for (const auto& [path, parameter] : parameters) {
    check(requires_grad(parameter) && parameter.dense(), "optimiser", path,
          " is not a dense leaf that takes gradients");
    const Tensor& first = parameters.front().second;
    check(parameter.dtype() == first.dtype() && parameter.device() == first.device(), "optimiser", path, " is ",
          parameter.dtype(), " on ", parameter.device(), ", ", parameters.front().first, " ", first.dtype(), " on ",
          first.device());
  }
  if (options.name == "adamw" || options.name == "adam") return std::make_unique<Adam>(options, std::move(parameters));
  if (options.name == "sgd") return std::make_unique<Sgd>(options, std::move(parameters));
  fail("optimiser", "there are adamw, adam and sgd, not '", options.name, "'");
}

Optimizer::Optimizer(const OptimizerOptions& options, NamedTensors parameters, std::int64_t row)
    : options_(options), parameters_(std::move(parameters)) {
  if (parameters_.empty()) return;
  const Tensor& first = parameters_.front().second;
  factors_ = Tensor::zeros({static_cast<std::int64_t>(parameters_.size()), row}, first.dtype(), first.device());
}

void Optimizer::step(std::int64_t n, double lr, double gradient_scale) {
  prepare(n, lr, gradient_scale);
  update();
}

void Optimizer::prepare(std::int64_t n, double lr, double gradient_scale) {
  if (parameters_.empty()) return;
  std::vector<double> rows;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::vector<double> row = factors(i, n, lr, gradient_scale);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  factors_.copy_from(Tensor::from(rows, factors_.shape()));
}

void Optimizer::clip(const Tensor& squares, const Tensor& loss, double clip) {
  if (parameters_.empty()) return;
  kernels(factors_.device()).clip_scale(factors_.select_view(1, 0).view(), squares.view(), loss.view(), clip);
}

DenseGradients::DenseGradients(const NamedTensors& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor d_parameter = gradient(parameters[i].second);
    if (!d_parameter.defined()) continue;
    places.push_back(i);
    tensors.push_back(d_parameter.to_dense());
    views.push_back(tensors.back().view());
  }
}

double parameter_decay(const OptimizerOptions& options, const Tensor& parameter) {
  return options.decay == "matrices" && parameter.rank() < 2 ? 0.0 : options.weight_decay;
}

void squared_gradients(const Tensor& squares, const NamedTensors& parameters) {
  const Kernels& on = kernels(squares.device());
  on.fill(squares.view(), 0);
  const DenseGradients gradients(parameters);
  std::vector<View> results;
  for (const std::size_t i : gradients.places) {
    results.push_back(squares.select_view(0, static_cast<std::int64_t>(i)).view());
  }
  const Workspace workspace(on.squared_norm_workspace(gradients.views), squares.device());
  on.squared_norm(results, gradients.views, workspace.data());
}

double gradient_norm(const NamedTensors& parameters) {
  if (parameters.empty()) return 0;
  const Tensor squares =
      Tensor::empty({static_cast<std::int64_t>(parameters.size())}, DType::f64, parameters.front().second.device());
  squared_gradients(squares, parameters);
  double sum = 0;
  for (const double square : squares.to_vector<double>()) sum += square;
  return std::sqrt(sum);
}

double clip_scale(double norm, double clip) { return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace tally
