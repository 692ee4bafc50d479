#include "tasks/evaluate.hpp"

#include <algorithm>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

void add_scores(Evaluation& evaluation, const Tensor& best, const Batch& batch) {
  if (batch.targets.device().type == DeviceType::meta) return;  // nothing is there to be read
  const Tensor on_host = best.to(Device{});
  const auto places = on_host.span<std::int64_t>();
  const auto targets = batch.targets.span<std::int32_t>();
  const auto mask = batch.score_mask.span<bool>();
  const auto length = static_cast<std::size_t>(batch.targets.size(1));
  for (std::size_t row = 0; row < targets.size(); row += length) {
    std::int64_t scored = 0, wrong = 0;
    for (std::size_t t = row; t < row + length; ++t) {
      if (!mask[t]) continue;
      ++scored;
      wrong += places[t] != targets[t];
    }
    if (scored == 0) continue;
    evaluation.scored += scored;
    evaluation.wrong += wrong;
    ++evaluation.sequences;
    evaluation.wrong_sequences += wrong > 0;
  }
}

namespace {

// Positions of a batch that count in the loss: all where nothing is there to be read.
std::int64_t counted(const Batch& batch) {
  if (batch.loss_mask.device().type == DeviceType::meta) return batch.loss_mask.numel();
  const auto mask = batch.loss_mask.span<bool>();
  return std::count(mask.begin(), mask.end(), true);
}

Tensor loss_of(const Tensor& logits, const Batch& batch) {
  return cross_entropy(logits, batch.targets.to(logits.device()), batch.loss_mask.to(logits.device()));
}

}  // namespace

void evaluate_batch(SequenceModel& model, const Batch& batch, Evaluation& evaluation) {
  const NoGrad no_grad;
  const Tensor logits = model.forward(batch.tokens);
  if (const std::int64_t count = counted(batch); count > 0) {
    evaluation.loss_sum += loss_of(logits, batch).item() * static_cast<double>(count);
    evaluation.loss_count += count;
    evaluation.loss = evaluation.loss_sum / static_cast<double>(evaluation.loss_count);
  }
  add_scores(evaluation, argmax(logits.detach()), batch);
}

TracedPass trace_pass(SequenceModel& model, const Batch& batch, bool with_gradients) {
  model.clear_gradients();
  TracedPass pass;
  const auto forward = [&] {
    pass.logits = model.forward(batch.tokens);
    pass.loss = loss_of(pass.logits, batch);
  };
  if (with_gradients) {
    forward();
    backward(pass.loss);
  }
  const NoGrad no_grad;
  if (!with_gradients) forward();
  model.forward(batch.tokens, {.trace = &pass.layers});
  return pass;
}

std::int64_t sequences_of(const Task& task, std::string_view split, std::int64_t count) {
  const Split& info = task.split(split);
  if (count == 0) count = info.count;
  check(count > 0, "evaluate", "split '", split, "' is endless; say how many sequences");
  check(info.count == 0 || count <= info.count, "evaluate", "split '", split, "' has ", info.count, " sequences, not ",
        count);
  return count;
}

Evaluation evaluate(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                    std::int64_t batch, const std::atomic<bool>* stop) {
  count = sequences_of(task, split, count);
  Evaluation result;
  result.split = std::string(split);
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    if (stop != nullptr && stop->load()) break;
    evaluate_batch(model, collate(examples_of(task, split, begin, std::min(begin + batch, count))), result);
  }
  return result;
}

JsonValue evaluation_json(std::int64_t step, const Evaluation& e) {
  const JsonMember measured = e.generated ? JsonMember{"generated", true} : JsonMember{"loss", e.loss};
  return JsonValue::object({{"step", step},
                            {"split", e.split},
                            measured,
                            {"token_error", e.token_error()},
                            {"sequence_error", e.sequence_error()},
                            {"wrong", e.wrong},
                            {"scored", e.scored},
                            {"wrong_sequences", e.wrong_sequences},
                            {"sequences", e.sequences}});
}

Evaluation evaluation_from_json(const JsonValue& json) {
  Evaluation e;
  e.split = json.string("split");
  e.generated = json.contains("generated") && json.boolean("generated");
  if (!e.generated) e.loss = json.real("loss");
  e.wrong = json.integer("wrong");
  e.scored = json.integer("scored");
  e.wrong_sequences = json.integer("wrong_sequences");
  e.sequences = json.integer("sequences");
  return e;
}

}  // namespace tally
