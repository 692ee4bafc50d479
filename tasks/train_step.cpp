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
    : model_(model), optimizer_(optimizer), options_(options), seed_(seed), parameters_(model.parameters()) {}

// A captured step reads the tensors that it was captured with.
void TrainStep::take(const Batch& batch) {
  if (!in_.defined() || in_.on_device(tokens).shape() != batch.tokens.shape()) {
    work_.forget();
    const DType dtype = parameters_.front().second.dtype();
    const Shape& shape = batch.tokens.shape();
    const auto count = static_cast<std::int64_t>(parameters_.size());
    in_ = Parcel({{shape, DType::i32}, {shape, DType::i32}, {shape, DType::boolean}, {{1}, DType::i32}, {{1}, dtype}},
                 model_.device());
    out_ = Parcel({{{1}, dtype}, {{count}, DType::f64}, {shape, DType::i64}}, model_.device());
  }
  in_.on_host(tokens).copy_from(batch.tokens);
  in_.on_host(targets).copy_from(batch.targets);
  in_.on_host(loss_mask).copy_from(batch.loss_mask);
}

void TrainStep::compute() {
  model_.clear_gradients();
  {
    const Pass pass{.training = true, .seed = seed_, .step_at = in_.on_device(step).view().as<std::uint32_t>()};
    const Tensor logits = model_.forward(in_.on_device(tokens), pass);
    const Tensor mean = cross_entropy(logits, in_.on_device(targets), in_.on_device(loss_mask), in_.on_device(weight));
    out_.on_device(loss).copy_from(mean.detach());
    out_.on_device(best).copy_from(argmax(logits.detach()));
    backward(mean);
  }
  squared_gradients(out_.on_device(squares), parameters_);
  optimizer_.clip(out_.on_device(squares), out_.on_device(loss), options_.clip);
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
  in_.on_host(weight).fill(1.0 / static_cast<double>(counted));
  in_.on_host(step).fill(static_cast<double>(n));
  in_.send();
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
  out_.fetch();
  report.loss = out_.on_host(loss).item();
  if (!std::isfinite(report.loss)) report_divergence(n, "loss", concat(": ", report.loss));
  const std::vector<double> norms = out_.on_host(squares).to_vector<double>();
  double sum = 0;
  std::string_view first;  // parameter whose gradient is not finite
  for (std::size_t i = 0; i < norms.size(); ++i) {
    sum += norms[i];
    if (first.empty() && !std::isfinite(norms[i])) first = parameters_[i].first;
  }
  report.grad_norm = std::sqrt(sum);
  if (!std::isfinite(report.grad_norm)) {
    report_divergence(n, concat("gradient of ", first.empty() ? "all parameters together" : first),
                      concat(" (loss ", report.loss, ")"));
  }
  Evaluation scores;
  add_scores(scores, out_.on_host(best), batch);
  report.token_error = scores.token_error();
  report.sequence_error = scores.sequence_error();
  return report;
}

}  // namespace tally
