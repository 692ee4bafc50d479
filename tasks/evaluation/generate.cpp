#include "tasks/evaluation/generate.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Sequences with answers at the same positions.
struct Group {
  Answer answer;
  std::vector<Example> examples;
  // The model's answers: rows of answer.count symbols.
  std::vector<std::int32_t> symbols;
  std::size_t count() const { return examples.size() * answer.count; }
};

void generate_answers(SequenceModel& model, Group& group) {
  std::vector<std::int32_t> prompts;
  for (const Example& example : group.examples) {
    const auto begin = example.tokens.begin();
    prompts.insert(prompts.end(), begin, begin + static_cast<std::ptrdiff_t>(group.answer.first) + 1);
  }
  const Shape shape{static_cast<std::int64_t>(group.examples.size()),
                    static_cast<std::int64_t>(group.answer.first) + 1};
  const Generated said = generate(model, Tensor::from(prompts, shape), static_cast<std::int64_t>(group.answer.count));
  group.symbols = said.symbols.to_vector<std::int32_t>();
}

// Each rank has generated the answers of one group; ranks from groups.size() on have none. All ranks get all answers.
void share_answers(const ProcessGroup& ranks, std::vector<Group>& groups) {
  std::vector<std::size_t> begins{0};
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks.size()); ++r) {
    begins.push_back(begins.back() + (r < groups.size() ? groups[r].count() : 0));
  }
  std::vector<std::int32_t> all(begins.back());
  const auto own = static_cast<std::size_t>(ranks.rank());
  if (own < groups.size()) {
    std::ranges::copy(groups[own].symbols, all.begin() + static_cast<std::ptrdiff_t>(begins[own]));
  }
  std::vector<std::size_t> bytes = begins;
  for (std::size_t& begin : bytes) begin *= sizeof(std::int32_t);
  ranks.all_gather(std::as_writable_bytes(std::span(all)), bytes);
  for (std::size_t n = 0; n < groups.size(); ++n) {
    const std::span<const std::int32_t> part = std::span<const std::int32_t>(all).subspan(begins[n], groups[n].count());
    groups[n].symbols.assign(part.begin(), part.end());
  }
}

void add_scores(Evaluation& evaluation, const Group& group) {
  for (std::size_t row = 0; row < group.examples.size(); ++row) {
    const Example& example = group.examples[row];
    std::vector<ScoredToken> scored;
    for (std::size_t n = 0; n < group.answer.count; ++n) {
      const std::size_t t = group.answer.first + n;
      const bool wrong = group.symbols[row * group.answer.count + n] != example.targets[t];
      scored.push_back({wrong, example.keys.empty() ? 0 : example.keys[t]});
    }
    add_sequence(evaluation, scored);
  }
}

}  // namespace

Answer answer_of(const Example& example, std::string_view split, std::int64_t index) {
  const auto& mask = example.score_mask;
  const auto begin = std::find(mask.begin(), mask.end(), 1), end = std::find(begin, mask.end(), 0);
  check(std::find(end, mask.end(), 1) == mask.end(), "generate",
        "what is scored in sequence {} of {} does not stand in one piece: there is no answer to generate", index,
        split);
  const Answer answer{static_cast<std::size_t>(begin - mask.begin()), static_cast<std::size_t>(end - begin)};
  for (std::size_t t = answer.first; t + 1 < answer.first + answer.count; ++t) {
    check(example.targets[t] == example.tokens[t + 1], "generate",
          "the answers in sequence {} of {} are not fed, so that there is none to go on from", index, split);
  }
  return answer;
}

Generated generate(SequenceModel& model, const Tensor& prompts, std::int64_t count) {
  check(count >= 1, "generate", "at least one symbol, not {}", count);
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
                              std::int64_t batch, const std::atomic<bool>* stop,
                              const std::function<void(std::int64_t done)>& progress) {
  count = sequences_of(task, split, count);
  Evaluation result = evaluation_of(task, split);
  result.generated = true;
  std::int64_t index = 0;
  std::optional<std::pair<Example, Answer>> ahead;  // the first of the next group
  const auto next_group = [&] {
    Group group;
    while (static_cast<std::int64_t>(group.examples.size()) < batch && (ahead || index < count)) {
      if (!ahead) {
        Example example = task.example(split, index);
        const Answer answer = answer_of(example, split, index++);
        if (answer.count == 0) continue;
        ahead.emplace(std::move(example), answer);
      }
      if (!group.examples.empty() && ahead->second != group.answer) break;
      group.answer = ahead->second;
      group.examples.push_back(std::move(ahead->first));
      ahead.reset();
    }
    return group;
  };
  const ProcessGroup& ranks = ProcessGroup::world();
  while (!ranks.any(stop != nullptr && stop->load())) {
    if (progress) progress(index - (ahead ? 1 : 0));
    std::vector<Group> groups;  // one for each rank
    while (static_cast<std::int64_t>(groups.size()) < ranks.size()) {
      Group group = next_group();
      if (group.examples.empty()) break;
      groups.push_back(std::move(group));
    }
    if (groups.empty()) break;
    if (const auto own = static_cast<std::size_t>(ranks.rank()); own < groups.size())
      generate_answers(model, groups[own]);
    if (!ranks.alone()) share_answers(ranks, groups);
    for (const Group& group : groups) add_scores(result, group);
  }
  return result;
}

}  // namespace tally
