#include "tasks/evaluate.hpp"

#include <algorithm>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

void add_scores(Evaluation& evaluation, const Tensor& best, const Batch& batch) {
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

std::int64_t sequences_of(const Task& task, std::string_view split, std::int64_t count) {
  const Split& info = task.split(split);
  if (count == 0) count = info.count;
  check(count > 0, "evaluate", "split '", split, "' is endless; say how many sequences");
  check(info.count == 0 || count <= info.count, "evaluate", "split '", split, "' has ", info.count, " sequences, not ",
        count);
  return count;
}

Evaluation evaluate(Transformer& model, const Task& task, std::string_view split, std::int64_t count,
                    std::int64_t batch, const std::atomic<bool>* stop) {
  count = sequences_of(task, split, count);
  const NoGrad no_grad;
  Evaluation result;
  result.split = std::string(split);
  double loss_sum = 0;
  std::int64_t loss_count = 0;
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    if (stop != nullptr && stop->load()) break;
    const Batch part = collate(examples_of(task, split, begin, std::min(begin + batch, count)));
    const Tensor logits = model.forward(part.tokens);
    const auto mask = part.loss_mask.span<bool>();
    const std::int64_t counted = std::count(mask.begin(), mask.end(), true);
    if (counted > 0) {
      loss_sum += cross_entropy(logits, part.targets.to(logits.device()), part.loss_mask.to(logits.device())).item() *
                  static_cast<double>(counted);
      loss_count += counted;
    }
    add_scores(result, argmax(logits.detach()), part);
  }
  if (loss_count > 0) result.loss = loss_sum / static_cast<double>(loss_count);
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
