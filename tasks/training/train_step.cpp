#include "tasks/training/train_step.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/profile.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/training/parameter_shares.hpp"
#include "tasks/training/tree_sum.hpp"

namespace tally {

void report_divergence(std::int64_t n, std::string_view tensor, std::string_view why) {
  throw Diverged(formatted("[train] step {}: the {} is not finite{}", n, tensor, why));
}

TrainStep::TrainStep(SequenceModel& model, Optimizer& optimizer, std::uint64_t seed, std::int64_t micro_batch,
                     const ParameterShares* shares, std::optional<RandomPositions> random_positions)
    : model_(model),
      optimizer_(optimizer),
      seed_(seed),
      micro_batch_(micro_batch),
      shares_(shares),
      random_positions_(random_positions),
      ranks_(model.device().type == DeviceType::meta ? ProcessGroup::counted() : ProcessGroup::world()),
      exchange_(ranks_.alone() ? nullptr : make_gradient_reducer(ranks_, model.device())),
      parameters_(model.parameters()),
      reads_positions_(reads_positions(model)) {
  std::erase_if(parameters_, [](const auto& parameter) { return !requires_grad(parameter.second); });
}

// A captured step reads the tensors with which it was captured, part by part.
void TrainStep::take(const SequenceParts& sequences, const Tensor& hyperparameters, std::int64_t n) {
  check(!random_positions_ || !sequences.separate(), "train",
        "random-positions is not for sequences of several texts that are masked from each other");
  const bool with_positions = sequences.separate() && reads_positions_;
  if (sequences.parts() != parts_ || sequences.separate() != (positions_end_ > 0)) {
    work_.forget();
    parts_ = sequences.parts();
    const DType dtype = parameters_.front().second.dtype();
    const Shape shape{sequences.size()};
    const auto count = static_cast<std::int64_t>(parameters_.size());
    std::vector<StagingBuffer::Part> in{{shape, DType::i32}, {shape, DType::i32}, {shape, DType::boolean},
                                        {{1}, DType::i32},   {{1}, dtype},        {hyperparameters.shape(), dtype}};
    if (with_positions) in.push_back({shape, DType::i32});
    if (random_positions_) in.push_back({{parts_.front().length}, DType::f64});
    in_ = StagingBuffer(in, model_.device());
    positions_end_ = sequences.separate() ? sequences.positions_end() : 0;
    out_ = StagingBuffer({{{1}, dtype}, {{count}, DType::f64}, {shape, DType::i64}}, model_.device());
  }
  in_.on_host(tokens).copy_from(sequences.tokens);
  in_.on_host(targets).copy_from(sequences.targets);
  in_.on_host(loss_mask).copy_from(sequences.loss_mask);
  in_.on_host(rows).copy_from(hyperparameters);
  if (with_positions) in_.on_host(positions).copy_from(sequences.positions());
  if (random_positions_) {
    const RandomStream stream{seed_, stream_of("random positions"), static_cast<std::uint32_t>(n)};
    Tensor& drawn = in_.on_host(positions);
    drawn.copy_from(random_positions_->draw(parts_.front().length, stream).to(drawn.device()));
  }
}

std::span<const SequencePart> TrainStep::parts_of(std::int64_t rank) const {
  const TreeShare share = tree_share(static_cast<std::int64_t>(parts_.size()), ranks_.size(), rank);
  return std::span(parts_).subspan(static_cast<std::size_t>(share.first),
                                   static_cast<std::size_t>(share.last - share.first));
}

// Adds the loss and the gradients of the parts of a batch as one list. Each part is a term of the mean over the whole
// batch.
void TrainStep::compute_gradients() {
  TreeSum total;
  std::vector<Tensor> sums;
  const std::span<const SequencePart> own = parts_of(ranks_.rank());
  for (const SequencePart& now : own) {
    const auto part = [&](Tensor& all) {
      return all.detached_slice(0, now.first, now.end()).detached_reshape({now.rows, now.length});
    };
    ForwardContext pass{.training = true,
                        .step = {.seed = seed_, .scalar = in_.on_device(step), .first_sequence = now.first_sequence}};
    pass.positions.end = positions_end_;
    if (positions_end_ > 0 && reads_positions_) pass.positions.each = part(in_.on_device(positions));
    if (random_positions_) {
      pass.positions.drawn = in_.on_device(positions);
      pass.positions.end = random_positions_->range;
    }
    model_.clear_gradients();
    const TokenLoss found = model_.loss(part(in_.on_device(tokens)), part(in_.on_device(targets)),
                                        part(in_.on_device(loss_mask)), in_.on_device(weight), pass);
    part(out_.on_device(best)).copy_from(found.best);
    if (!ranks_.alone() && &now == &own.back()) {
      sums = exchange_gradients(found.loss, total);
      break;
    }
    backward(found.loss);
    std::vector<Tensor> term{found.loss.detach()};
    for (const auto& [name, parameter] : parameters_) term.push_back(gradient(parameter));
    total.add(std::move(term));
  }
  if (ranks_.alone()) sums = total.take();
  if (own.empty()) sums = exchange_gradients({}, total);  // a small batch may leave no part for this rank
  out_.on_device(loss).copy_from(sums.front());
  model_.clear_gradients();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (sums[i + 1].defined()) set_gradient(parameters_[i].second, sums[i + 1]);
  }
}

// Backward reaches the last parameters first, so they are sent first.
std::vector<Tensor> TrainStep::exchange_gradients(const Tensor& part_loss, TreeSum& total) {
  const std::int64_t terms = tree_share(static_cast<std::int64_t>(parts_.size()), ranks_.size(), 0).ranks;
  const std::size_t count = parameters_.size();
  std::vector<Shape> shapes{{1}};
  std::unordered_map<const AutogradData*, std::size_t> places;  // in the list that is sent, and in a term
  for (std::size_t i = count; i-- > 0;) {
    shapes.push_back(parameters_[i].second.shape());
    places.emplace(parameters_[i].second.autograd().get(), i + 1);
  }
  RankSum sum(ranks_, *exchange_, std::move(shapes), parameters_.front().second.dtype(), model_.device(), terms);
  const auto sent_as = [count](std::size_t i) { return i == 0 ? 0 : count + 1 - i; };
  std::vector<bool> sent(count + 1);
  const auto send = [&](std::size_t i, const Tensor& last) {
    sent[i] = true;
    sum.set(sent_as(i), total.take_with(i, last));
  };
  if (part_loss.defined()) {
    send(0, part_loss.detach());
    backward(part_loss, [&](AutogradData& leaf) {
      const auto place = places.find(&leaf);
      if (place != places.end()) send(place->second, std::exchange(leaf.gradient, {}));
    });
  }
  for (std::size_t i = 0; i <= count; ++i) {
    if (!sent[i]) send(i, {});
  }
  std::vector<Tensor> sums = sum.take();
  std::reverse(sums.begin() + 1, sums.end());
  return sums;
}

void TrainStep::compute() {
  compute_gradients();
  squared_gradients(out_.on_device(squares), parameters_);
  optimizer_.clip(in_.on_device(rows), out_.on_device(squares), out_.on_device(loss));
  if (shares_ != nullptr) {
    shares_->take_gradients();
    optimizer_.update(in_.on_device(rows));
    shares_->share_parameters(exchange_.get());
  } else {
    optimizer_.update(in_.on_device(rows));
  }
  model_.project_parameters();
  model_.clear_gradients();
}

StepReport TrainStep::operator()(const Batch& batch, std::int64_t n, std::int64_t steps) {
  StepReport report;
  report.step = n;
  report.steps = steps;
  report.lr = learning_rate(optimizer_.options(), n, steps);
  const SequenceParts sequences(batch, micro_batch_);
  take(sequences, optimizer_.hyperparameters(n, report.lr), n);
  const std::int64_t counted = counted_targets(batch.targets, batch.loss_mask, model_.vocabulary());
  in_.on_host(weight).fill(1.0 / static_cast<double>(counted));
  in_.on_host(step).fill(static_cast<double>(n));
  in_.send();
  at_step(n, [&] {
    // Finite checks and profiling examine every operation, and messages to other ranks cannot be captured.
    if (finite_checks() || profiling() || !ranks_.alone()) {
      work_.forget();
      compute();
    } else {
      work_(model_.device(), [this] { compute(); });
    }
  });
  if (!work_.refusal().empty() && !std::exchange(noted_, true)) {
    report.note = formatted("steps are computed call by call, and not replayed: {}", work_.refusal());
  }
  out_.fetch();
  if (!ranks_.alone() && model_.device().type != DeviceType::meta) {
    const std::span<std::int64_t> all = out_.on_host(best).span<std::int64_t>();
    std::vector<std::size_t> begins{0};
    for (std::int64_t r = 0; r < ranks_.size(); ++r) {
      const std::span<const SequencePart> own = parts_of(r);
      begins.push_back(own.empty() ? begins.back() : static_cast<std::size_t>(own.back().end()) * sizeof(std::int64_t));
    }
    ranks_.all_gather(std::as_writable_bytes(all), begins);
  }
  report.loss = out_.on_host(loss).item();
  const std::vector<double> norms = out_.on_host(squares).to_vector<double>();
  report.grad_norm = gradient_norm(norms);
  check_finite(report, norms);
  Evaluation scores;
  add_scores(scores, sequences.put_back(out_.on_host(best)), batch);
  report.token_error = scores.token_error();
  report.sequence_error = scores.sequence_error();
  return report;
}

void TrainStep::check_finite(const StepReport& report, const std::vector<double>& norms) const {
  if (!std::isfinite(report.loss)) report_divergence(report.step, "loss", formatted(": {}", report.loss));
  if (std::isfinite(report.grad_norm)) return;
  const auto first = std::ranges::find_if(norms, [](double square) { return !std::isfinite(square); });
  const std::string_view whose =
      first == norms.end() ? "all parameters together"
                           : std::string_view(parameters_[static_cast<std::size_t>(first - norms.begin())].first);
  report_divergence(report.step, formatted("gradient of {}", whose), formatted(" (loss {})", report.loss));
}

}  // namespace tally
