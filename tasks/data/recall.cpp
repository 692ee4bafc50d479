#include "tasks/data/recall.hpp"

#include <cmath>

#include "core/error.hpp"

namespace tally {
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

Recall::Recall(std::string name, const RecallOptions& options)
    : ToyTask({std::move(name), symbols(options.vocabulary), Writing::tagged}),
      first_value_(options.vocabulary / 2),
      random_filler_(options.filler == "random") {}

void Recall::add(std::string split, std::int64_t count, const RecallLaw& law, std::uint64_t seed) {
  check(law.length % 2 == 0, name(), "length must be even, got {}", law.length);
  check(law.pairs < first_value_, name(), "{} has {} pairs, of {} different keys: the vocabulary is too small", split,
        law.pairs, first_value_ - 1);
  check(law.updates <= law.pairs, name(), "{} has {} updates of {} keys", split, law.updates, law.pairs);
  std::string what = formatted("{} pairs", law.pairs);
  if (law.updates > 0) what += formatted(" and {} updates", law.updates);
  const std::int64_t least = 4 * law.pairs + 2 * law.updates;
  check(least <= law.length, name(), "{} with {} needs a length of {}, got {}", split, what, least, law.length);
  add_split({std::move(split), formatted("{} in {} tokens", what, law.length), count, law.length}, law, seed);
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
