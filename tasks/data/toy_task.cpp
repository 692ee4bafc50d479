#include "tasks/data/toy_task.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include "core/error.hpp"

namespace tally {

std::string written(const Example& example, const std::vector<std::string>& vocabulary, Writing writing) {
  const auto scored = [&](std::size_t t) { return t < example.score_mask.size() && example.score_mask[t] != 0; };
  if (writing != Writing::tagged) {
    std::vector<std::int32_t> all = example.tokens;
    if (!all.empty() && scored(all.size() - 1)) all.push_back(example.targets.back());
    return join_symbols(vocabulary, all, writing == Writing::words ? " " : "");
  }
  std::string text;
  for (std::size_t t = 0; t < example.tokens.size(); ++t) {
    if (t > 0) text += " ";
    text += join_symbols(vocabulary, {&example.tokens[t], 1}, "");
    if (scored(t)) text += ":" + join_symbols(vocabulary, {&example.targets[t], 1}, "");
  }
  return text;
}

std::vector<std::int32_t> read_written(std::string_view text, const std::vector<std::string>& vocabulary,
                                       Writing writing) {
  if (writing == Writing::symbols) return encode_characters(vocabulary, text);
  if (writing == Writing::words) return encode_words(vocabulary, text);
  std::string untagged;
  bool in_tag = false;
  for (const char c : text) {
    in_tag = c == ':' || (in_tag && std::isspace(static_cast<unsigned char>(c)) == 0);
    if (!in_tag) untagged += c;
  }
  return encode_words(vocabulary, untagged);
}

Example tag_example(std::vector<std::int32_t> tokens) {
  Example example;
  example.tokens = std::move(tokens);
  example.targets.assign(example.tokens.size(), 0);
  example.loss_mask.assign(example.tokens.size(), 0);
  example.score_mask.assign(example.tokens.size(), 0);
  return example;
}

void train_on(Example& example, std::size_t t, std::int32_t target) {
  example.targets[t] = target;
  example.loss_mask[t] = 1;
}

void ask(Example& example, std::size_t t, std::int32_t target) {
  train_on(example, t, target);
  example.score_mask[t] = 1;
}

Example prompt_and_outputs(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& outputs) {
  const std::size_t prompt_length = prompt.size();
  prompt.insert(prompt.end(), outputs.begin(), outputs.end());
  Example example = next_token_example(std::move(prompt));
  for (std::size_t t = prompt_length - 1; t + 1 < example.tokens.size(); ++t) {
    example.loss_mask[t] = 1;
    example.score_mask[t] = 1;
  }
  return example;
}

Example one_answer(std::vector<std::int32_t> prompt, std::int32_t separator, std::int32_t answer) {
  prompt.push_back(separator);
  Example example = tag_example(std::move(prompt));
  ask(example, example.tokens.size() - 1, answer);
  return example;
}

void set_key(Example& example, std::int64_t key) {
  example.keys.assign(example.tokens.size(), static_cast<std::int32_t>(key));
}

std::int64_t uniform_in(Rng& rng, std::int64_t low, std::int64_t high) {
  return low + rng.below(static_cast<std::uint32_t>(high - low + 1));
}

std::vector<std::int32_t> distinct(Rng& rng, std::int64_t count, std::int64_t n) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto wanted = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < wanted; ++i) {  // a partial Fisher-Yates shuffle
    std::swap(numbers[i], numbers[i + rng.below(static_cast<std::uint32_t>(numbers.size() - i))]);
  }
  numbers.resize(wanted);
  return numbers;
}

std::vector<std::string> numbered(std::string_view prefix, std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(formatted("{}{}", prefix, i));
  return names;
}

std::vector<std::string> letters(char first, std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.emplace_back(1, static_cast<char>(first + i));
  return names;
}

void append(std::vector<std::string>& names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
}

void LengthOptions::visit(OptionVisitor& visitor) {
  visitor.integer("max-length", max_length, "longest prompt N of train and in-distribution; ood-long has up to 5N/2", 2,
                  1 << 16);
  visitor.integer("eval-count", eval_count, "sequences of in-distribution and ood-long", 1);
  visitor.integer("far-count", far_count,
                  "sequences of ood-far, with prompts beyond 5N/2 and up to 25N/2; 0: no such split", 0);
}

LengthTask::LengthTask(ToyForm form, const LengthOptions& options, const Seeds& seeds, std::int64_t times)
    : ToyTask(std::move(form), seeds) {
  const std::int64_t n = options.max_length, longer = 5 * n / 2;
  const auto add = [&](const char* split, std::int64_t count, const LengthRange& range) {
    add_split({split, formatted("n = {} to {}", range.least, range.most), count, times * range.most + 1}, range);
  };
  add("train", 0, {1, n});
  add("in-distribution", options.eval_count, {1, n});
  add("ood-long", options.eval_count, {n + 1, longer});
  if (options.far_count > 0) add("ood-far", options.far_count, {longer + 1, 25 * n / 2});
}

Example LengthTask::draw(Rng& rng, const LengthRange& range) const {
  Example example = draw_length(rng, uniform_in(rng, range.least, range.most));
  const auto separator = std::ranges::find(example.score_mask, 1);
  set_key(example, separator - example.score_mask.begin());
  return example;
}

void RunningAnswerOptions::visit(OptionVisitor& visitor) {
  lengths.visit(visitor);
  visitor.flag("every", every, "also train on the answer so far at every symbol of the prompt");
}

RunningAnswerTask::RunningAnswerTask(std::string name, std::vector<std::string> vocabulary, std::int64_t drawn,
                                     const RunningAnswerOptions& options, const Seeds& seeds)
    : LengthTask({std::move(name), std::move(vocabulary), Writing::symbols, "length"}, options.lengths, seeds),
      drawn_(drawn),
      every_(options.every) {}

Example RunningAnswerTask::draw_length(Rng& rng, std::int64_t n) const {
  const auto separator = static_cast<std::int32_t>(vocabulary().size()) - 1;
  std::vector<std::int32_t> prompt, answers;
  for (std::int64_t i = 0; i < n; ++i) {
    prompt.push_back(static_cast<std::int32_t>(uniform_in(rng, separator - drawn_, separator - 1)));
    answers.push_back(next_answer(answers.empty() ? 0 : answers.back(), prompt));
  }
  Example example = one_answer(std::move(prompt), separator, answers.back());
  for (std::size_t t = 0; every_ && t < answers.size(); ++t) train_on(example, t, answers[t]);
  return example;
}

namespace {

std::vector<std::string> symbols(std::int64_t vocabulary) {
  std::vector<std::string> names{"."};
  for (std::int64_t key = 1; key < vocabulary / 2; ++key) names.push_back(formatted("k{}", key));
  append(names, numbered("v", vocabulary - vocabulary / 2));
  return names;
}

// Draws the first `count` slots one after the other, without replacement, with weights (g+1)^(a-1). The weights are
// integers so that the result does not depend on the last bit of pow.
std::vector<std::size_t> draw_slots(Rng& rng, std::int64_t count, std::int64_t slots) {
  constexpr double a = 0.01;
  std::vector<std::uint32_t> weights;
  std::uint32_t left = 0;  // about 2^24 ln(slots)
  for (std::int64_t g = 0; g < slots; ++g) {
    weights.push_back(static_cast<std::uint32_t>(std::lround(0x1p24 * std::pow(static_cast<double>(g + 1), a - 1))));
    left += weights.back();
  }
  std::vector<std::size_t> taken;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t at = rng.below(left);
    std::size_t g = 0;
    while (at >= weights[g]) at -= weights[g++];
    taken.push_back(g);
    left -= weights[g];
    weights[g] = 0;
  }
  return taken;
}

}  // namespace

void RecallOptions::visit(OptionVisitor& visitor) {
  visitor.integer("vocabulary", vocabulary, "number of ids V: one filler, V/2 - 1 keys, V/2 values", 4, 1 << 20);
  visitor.integer("pairs", pairs, "pairs K of a key and a value", 1, 1 << 16);
  visitor.integer("length", length, "tokens T, even; ood-long has 2T", 8, 1 << 19);
  visitor.choice("filler", filler, {"zero", "random"},
                 "symbols between the queries: one filler symbol, or random symbols");
  visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
}

Recall::Recall(std::string name, const RecallOptions& options, std::int64_t updates, const Seeds& seeds)
    : ToyTask({std::move(name), symbols(options.vocabulary), Writing::tagged}, seeds),
      first_value_(options.vocabulary / 2),
      random_filler_(options.filler == "random") {
  const std::int64_t pairs = options.pairs, length = options.length, count = options.eval_count;
  const RecallLaw more = updates > 0 ? RecallLaw{pairs, pairs, length} : RecallLaw{2 * pairs, 0, length};
  add("train", 0, {pairs, updates, length});
  add("in-distribution", count, {pairs, updates, length});
  const bool fits = more.pairs < first_value_ && 4 * more.pairs + 2 * more.updates <= length;
  if (fits) add(updates > 0 ? "ood-all" : "ood-dense", count, more);
  add("ood-long", count, {pairs, updates, 2 * length});
}

void Recall::add(std::string split, std::int64_t count, const RecallLaw& law) {
  check(law.length % 2 == 0, name(), "length must be even, got {}", law.length);
  check(law.pairs < first_value_, name(), "{} has {} pairs, of {} different keys: the vocabulary is too small", split,
        law.pairs, first_value_ - 1);
  check(law.updates <= law.pairs, name(), "{} has {} updates of {} keys", split, law.updates, law.pairs);
  std::string what = formatted("{} pairs", law.pairs);
  if (law.updates > 0) what += formatted(" and {} updates", law.updates);
  const std::int64_t least = 4 * law.pairs + 2 * law.updates;
  check(least <= law.length, name(), "{} with {} needs a length of {}, got {}", split, what, least, law.length);
  add_split({std::move(split), formatted("{} in {} tokens", what, law.length), count, law.length}, law);
}

Example Recall::draw(Rng& rng, const RecallLaw& law) const {
  const auto count = static_cast<std::uint32_t>(vocabulary().size());
  const auto all_values = static_cast<std::int64_t>(count) - first_value_;
  const std::vector<std::int32_t> keys = distinct(rng, law.pairs, first_value_ - 1);
  std::vector<std::int32_t> values = distinct(rng, law.pairs, all_values);
  std::vector<std::int32_t> tokens;
  const auto assign = [&](std::size_t i) {
    tokens.push_back(1 + keys[i]);
    tokens.push_back(static_cast<std::int32_t>(first_value_) + values[i]);
  };
  for (std::size_t i = 0; i < keys.size(); ++i) assign(i);
  for (const std::int32_t updated : distinct(rng, law.updates, law.pairs)) {
    const auto i = static_cast<std::size_t>(updated);
    const auto other = static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(all_values - 1)));
    values[i] = other + (other >= values[i] ? 1 : 0);
    assign(i);
  }
  const std::size_t context = tokens.size();
  tokens.resize(static_cast<std::size_t>(law.length));
  for (std::size_t t = context; random_filler_ && t < tokens.size(); ++t) {
    tokens[t] = static_cast<std::int32_t>(rng.below(count));
  }
  Example example = tag_example(std::move(tokens));
  const std::vector<std::size_t> slots = draw_slots(rng, law.pairs, (law.length - std::int64_t(context)) / 2);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::size_t t = context + 2 * slots[i];
    example.tokens[t] = 1 + keys[i];
    ask(example, t, static_cast<std::int32_t>(first_value_) + values[i]);
  }
  return example;
}

}  // namespace tally
