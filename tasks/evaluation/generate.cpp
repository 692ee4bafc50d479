#include "tasks/evaluation/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/distributed/process_group.hpp"
#include "core/error.hpp"
#include "core/math/random.hpp"
#include "core/utf8.hpp"
#include "tasks/print/printable.hpp"

namespace tally {
namespace {

// Sequences with answers at the same positions.
struct Group {
  Answer answer;
  std::vector<Example> examples;
  // The model's answers: rows of answer.count symbols.
  std::vector<std::int32_t> symbols;
};

void generate_answers(SequenceModel& model, Group& group) {
  std::vector<std::int32_t> prompts;
  for (const Example& example : group.examples) {
    const auto begin = example.tokens.begin();
    prompts.insert(prompts.end(), begin, begin + static_cast<std::ptrdiff_t>(group.answer.first) + 1);
  }
  const Shape shape{static_cast<std::int64_t>(group.examples.size()),
                    static_cast<std::int64_t>(group.answer.first) + 1};
  const Tensor symbols = generate(model, Tensor::from(prompts, shape), static_cast<std::int64_t>(group.answer.count));
  group.symbols = symbols.to_vector<std::int32_t>();
}

// Each rank has generated the answers of one group; ranks from groups.size() on have none. All ranks get all answers.
void share_answers(const ProcessGroup& ranks, std::vector<Group>& groups) {
  std::vector<std::size_t> sizes;
  for (const Group& group : groups) sizes.push_back(group.examples.size() * group.answer.count);
  std::span<const std::int32_t> own;
  if (const auto rank = static_cast<std::size_t>(ranks.rank()); rank < groups.size()) own = groups[rank].symbols;
  std::vector<std::vector<std::int32_t>> all = gathered(ranks, sizes, own);
  for (std::size_t n = 0; n < groups.size(); ++n) groups[n].symbols = std::move(all[n]);
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

Tensor generate(SequenceModel& model, const Tensor& prompts, std::int64_t count) {
  check(count >= 1, "generate", "at least one symbol, not {}", count);
  const NoGrad no_grad;
  GenerationState state;
  std::vector<Tensor> symbols;
  Tensor fed = prompts;
  for (std::int64_t n = 0; n < count; ++n) {
    const Tensor logits = model.step(fed, state);
    const Tensor last = slice(logits, 1, logits.size(1) - 1, logits.size(1));  // [B, 1, V]
    fed = argmax(last).to(DType::i32);
    symbols.push_back(fed);
  }
  return concat(symbols, 1);
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

void SamplingOptions::visit(OptionVisitor& visitor) {
  visitor.real("temperature", temperature,
               "divisor of the logits: below 1 favours likely tokens, above 1 unlikely ones; 0: always the "
               "likeliest",
               0, 1e6);
  visitor.integer("top-k", top_k, "only the k likeliest; 0: all", 0);
  visitor.real("top-p", top_p, "sample from the fewest tokens whose probabilities add up to p", above(0), 1);
}

Sampled sample(std::span<const double> logits, const SamplingOptions& options, double uniform) {
  check(!logits.empty(), "sample", "there are no logits");
  for (std::size_t id = 0; id < logits.size(); ++id) {
    check(std::isfinite(logits[id]), "sample", "the logit of token {} is {}", id, logits[id]);
  }
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
  const auto probability_of = [&](std::size_t id) {
    return std::exp((logits[id] - logits[largest]) / (options.temperature > 0 ? options.temperature : 1));
  };
  const auto told = [&](std::size_t id) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - logits[largest]);
    return Sampled{static_cast<std::int32_t>(id), logits[id] - logits[largest] - std::log(sum)};
  };
  if (options.temperature == 0) return told(largest);

  std::vector<std::size_t> kept(logits.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < kept.size()) {
    const auto end = kept.begin() + options.top_k;
    std::nth_element(kept.begin(), end, kept.end(), likelier);
    kept.erase(end, kept.end());
  }
  const auto sum_of = [&] {
    double sum = 0;
    for (const std::size_t id : kept) sum += probability_of(id);
    return sum;
  };
  if (options.top_p < 1) {
    std::sort(kept.begin(), kept.end());  // the sum must not depend on how the k largest were found
    const double all = sum_of();
    std::sort(kept.begin(), kept.end(), likelier);
    double reached = 0;
    std::size_t count = 0;
    while (count < kept.size() && (count == 0 || reached < options.top_p * all))
      reached += probability_of(kept[count++]);
    kept.resize(count);
  }
  std::sort(kept.begin(), kept.end());
  double left = uniform * sum_of();
  for (const std::size_t id : kept) {
    const double probability = probability_of(id);
    if (left < probability) return told(id);
    left -= probability;
  }
  return told(kept.back());  // if rounding has used up the sum
}

double sampling_uniform(std::uint64_t seed, std::int64_t token, std::int64_t sample) {
  const RandomStream stream{seed, stream_of("generate"), static_cast<std::uint32_t>(token)};
  const auto element = 2 * static_cast<std::uint64_t>(sample);
  const std::uint64_t bits = std::uint64_t{stream.bits(element)} << 32 | stream.bits(element + 1);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

namespace {

// The number of final bytes that may be an incomplete character.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const std::size_t whole = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return whole > back ? back : 0;
  }
  return 0;
}

// The number of final bytes that may be the beginning of `word`.
std::size_t begun(std::string_view text, std::string_view word) {
  for (std::size_t size = std::min(text.size(), word.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == word.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

std::string with_replacements(std::string_view bytes) {
  std::string text;
  while (true) {
    const std::size_t valid = std::min(find_invalid_utf8(bytes), bytes.size());
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return text;
    append_utf8(text, 0xfffd);
    bytes.remove_prefix(1);
  }
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  waiting_ += bytes;
  if (!stop_.empty()) {
    if (const std::size_t at = waiting_.find(stop_); at != std::string::npos) {
      waiting_.resize(at);
      const std::string last = finish();
      stopped_ = true;
      return last;
    }
  }
  const std::size_t held = std::max(stop_.empty() ? 0 : begun(waiting_, stop_), raw_ ? 0 : unfinished(waiting_));
  const std::string text = shown(std::string_view(waiting_).substr(0, waiting_.size() - held));
  waiting_.erase(0, waiting_.size() - held);
  return text;
}

std::string TextStream::finish() {
  const std::string text = shown(waiting_);
  waiting_.clear();
  return text;
}

std::string TextStream::shown(std::string_view bytes) const {
  if (raw_) return std::string(bytes);
  std::string text;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\n\t"), bytes.size());
    text += printable(bytes.substr(0, end));
    if (end < bytes.size()) text += bytes[end];
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return text;
}

}  // namespace tally
