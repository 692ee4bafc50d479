#include "nn/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
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
  }
  if (options.name == "adamw" || options.name == "adam") return std::make_unique<Adam>(options, std::move(parameters));
  if (options.name == "sgd") return std::make_unique<Sgd>(options, std::move(parameters));
  fail("optimiser", "there are adamw, adam and sgd, not '", options.name, "'");
}

double parameter_decay(const OptimizerOptions& options, const Tensor& parameter) {
  return options.decay == "matrices" && parameter.rank() < 2 ? 0.0 : options.weight_decay;
}

double gradient_norm(const NamedTensors& parameters) {
  double sum = 0;
  for (const auto& [path, parameter] : parameters) {
    const Tensor d_parameter = gradient(parameter);
    if (!d_parameter.defined()) continue;
    const Tensor square = Tensor::empty({1}, DType::f64, parameter.device());
    kernels(parameter.device()).squared_norm(square.view(), d_parameter.to_dense().view());
    sum += square.item();
  }
  return std::sqrt(sum);
}

double clip_scale(double norm, double clip) { return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace tally
