#include "tasks/evaluation/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.hpp"
#include "core/math/random.hpp"

namespace tally {

void SamplingOptions::visit(OptionVisitor& visitor) {
  visitor.real("temperature", temperature,
               "logits are divided by it: below 1 likelier tokens, above 1 more of the others; 0: the likeliest", 0,
               1e6);
  visitor.integer("top-k", top_k, "only the k likeliest; 0: all", 0);
  visitor.real("top-p", top_p, "of these the fewest whose probability together reaches p", above(0), 1);
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

}  // namespace tally
