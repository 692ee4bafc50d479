#include "tasks/train_step.hpp"

#include <cmath>
#include <string_view>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/profile.hpp"
#include "tasks/evaluate.hpp"

namespace tally {

void report_divergence(std::int64_t n, std::string_view tensor, std::string_view why) {
  throw Diverged(concat("[train] step ", n, ": the ", tensor, " is not finite", why));
}

TrainStep::TrainStep(Transformer& model, Optimizer& optimizer, const OptimizerOptions& options, std::uint64_t seed)
    : model_(model), optimizer_(optimizer), options_(options), seed_(seed), parameters_(model.parameters()) {
  const Device device = model.device();
  step_ = Tensor::zeros({1}, DType::i32, device);
  weight_ = Tensor::zeros({1}, parameters_.front().second.dtype(), device);
  loss_ = Tensor::zeros({1}, parameters_.front().second.dtype(), device);
  squares_ = Tensor::zeros({static_cast<std::int64_t>(parameters_.size())}, DType::f64, device);
}

// A captured step reads the tensors that it was captured with.
void TrainStep::take(const Batch& batch) {
  if (batch_.tokens.defined() && batch_.tokens.shape() == batch.tokens.shape()) {
    batch_.tokens.copy_from(batch.tokens);
    batch_.targets.copy_from(batch.targets);
    batch_.loss_mask.copy_from(batch.loss_mask);
    return;
  }
  work_.forget();
  const Batch moved = batch.to(model_.device());
  batch_ = {moved.tokens.clone(), moved.targets.clone(), moved.loss_mask.clone(), {}};
  best_ = Tensor::zeros(batch.tokens.shape(), DType::i64, model_.device());
}

void TrainStep::compute() {
  model_.clear_gradients();
  {
    const Pass pass{.training = true, .seed = seed_, .step_at = step_.view().as<std::uint32_t>()};
    const Tensor logits = model_.forward(batch_.tokens, pass);
    const Tensor loss = cross_entropy(logits, batch_.targets, batch_.loss_mask, weight_);
    loss_.copy_from(loss.detach());
    best_.copy_from(argmax(logits.detach()));
    backward(loss);
  }
  squared_gradients(squares_, parameters_);
  optimizer_.clip(squares_, loss_, options_.clip);
  optimizer_.update();
  model_.project_parameters();
  model_.clear_gradients();
}

StepReport TrainStep::operator()(const Batch& batch, std::int64_t n, std::int64_t steps) {
  StepReport report;
  report.step = n;
  report.steps = steps;
  report.lr = learning_rate(options_, n, steps);
  take(batch);
  const std::int64_t counted = counted_targets(batch.targets, batch.loss_mask, model_.vocabulary());
  weight_.copy_from(Tensor::full({1}, 1.0 / static_cast<double>(counted), weight_.dtype()));
  step_.copy_from(Tensor::full({1}, static_cast<double>(n), DType::i32));
  optimizer_.prepare(n, report.lr);
  at_step(n, [&] {
    // The first two look at every operation.
    if (finite_checks() || profiling() || model_.reads_back()) {
      work_.forget();
      compute();
    } else {
      work_(model_.device(), [this] { compute(); });
    }
  });
  report.loss = loss_.item();
  if (!std::isfinite(report.loss)) report_divergence(n, "loss", concat(": ", report.loss));
  const std::vector<double> squares = squares_.to(Device{}).to_vector<double>();
  double sum = 0;
  std::string_view first;  // parameter whose gradient is not finite
  for (std::size_t i = 0; i < squares.size(); ++i) {
    sum += squares[i];
    if (first.empty() && !std::isfinite(squares[i])) first = parameters_[i].first;
  }
  report.grad_norm = std::sqrt(sum);
  if (!std::isfinite(report.grad_norm)) {
    report_divergence(n, concat("gradient of ", first.empty() ? "all parameters together" : first),
                      concat(" (loss ", report.loss, ")"));
  }
  Evaluation scores;
  add_scores(scores, best_, batch);
  report.token_error = scores.token_error();
  report.sequence_error = scores.sequence_error();
  return report;
}

}  // namespace tally
