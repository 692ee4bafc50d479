#include "tasks/generate.hpp"

#include <algorithm>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Adds the scores of sequences whose answers stand at the same positions.
void add_generated(Evaluation& evaluation, SequenceModel& model, const std::vector<Example>& examples,
                   const Answer& answer) {
  std::vector<std::int32_t> prompts;
  for (const Example& example : examples) {
    const auto begin = example.tokens.begin();
    prompts.insert(prompts.end(), begin, begin + static_cast<std::ptrdiff_t>(answer.first) + 1);
  }
  const Shape shape{static_cast<std::int64_t>(examples.size()), static_cast<std::int64_t>(answer.first) + 1};
  const Generated said = generate(model, Tensor::from(prompts, shape), static_cast<std::int64_t>(answer.count));
  const std::vector<std::int32_t> symbols = said.symbols.to_vector<std::int32_t>();
  for (std::size_t row = 0; row < examples.size(); ++row) {
    const Example& example = examples[row];
    std::vector<ScoredToken> scored;
    for (std::size_t n = 0; n < answer.count; ++n) {
      const std::size_t t = answer.first + n;
      const bool wrong = symbols[row * answer.count + n] != example.targets[t];
      scored.push_back({wrong, example.keys.empty() ? 0 : example.keys[t]});
    }
    add_sequence(evaluation, scored);
  }
}

}  // namespace

Answer answer_of(const Example& example, std::string_view split, std::int64_t index) {
  const auto& mask = example.score_mask;
  const auto begin = std::find(mask.begin(), mask.end(), 1), end = std::find(begin, mask.end(), 0);
  check(std::find(end, mask.end(), 1) == mask.end(), "generate", "what is scored in sequence ", index, " of ", split,
        " does not stand in one piece: there is no answer to generate");
  const Answer answer{static_cast<std::size_t>(begin - mask.begin()), static_cast<std::size_t>(end - begin)};
  for (std::size_t t = answer.first; t + 1 < answer.first + answer.count; ++t) {
    check(example.targets[t] == example.tokens[t + 1], "generate", "the answers in sequence ", index, " of ", split,
          " are not fed, so that there is none to go on from");
  }
  return answer;
}

Generated generate(SequenceModel& model, const Tensor& prompts, std::int64_t count) {
  check(count >= 1, "generate", "at least one symbol, not ", count);
  const NoGrad no_grad;
  GenerationState state;
  std::vector<Tensor> symbols, probabilities;
  Tensor fed = prompts;
  for (std::int64_t n = 0; n < count; ++n) {
    const Tensor logits = model.step(fed, state);
    const Tensor last = slice(logits, 1, logits.size(1) - 1, logits.size(1));  // [B, 1, V]
    fed = argmax(last).to(DType::i32);
    symbols.push_back(fed);
    probabilities.push_back(max(softmax(cast(last, DType::f64)), 2));
  }
  return {concat(symbols, 1), concat(probabilities, 1)};
}

Evaluation evaluate_generated(SequenceModel& model, const Task& task, std::string_view split, std::int64_t count,
                              std::int64_t batch, const std::atomic<bool>* stop) {
  count = sequences_of(task, split, count);
  Evaluation result = evaluation_of(task, split);
  result.generated = true;
  std::vector<Example> waiting;
  Answer at;  // of all that wait
  const auto flush = [&] {
    if (!waiting.empty()) add_generated(result, model, waiting, at);
    waiting.clear();
  };
  for (std::int64_t index = 0; index < count && (stop == nullptr || !stop->load()); ++index) {
    Example example = task.example(split, index);
    const Answer answer = answer_of(example, split, index);
    if (answer.count == 0) continue;
    if (answer != at || static_cast<std::int64_t>(waiting.size()) == batch) flush();
    at = answer;
    waiting.push_back(std::move(example));
  }
  flush();
  return result;
}

}  // namespace tally
