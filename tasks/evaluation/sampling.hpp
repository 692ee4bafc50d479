// How the next token of a text is chosen from the model's logits.
#pragma once

#include <cstdint>
#include <span>

#include "nn/options.hpp"

namespace tally {

struct SamplingOptions final : OptionsOf<SamplingOptions> {
  double temperature = 1;  // logits are divided by it; 0: always the largest, of equals the one with the smallest id
  std::int64_t top_k = 0;  // only the k largest, of equals those with the smallest ids; 0: all
  double top_p = 1;        // of these the fewest largest whose probability together reaches p (Holtzman et al. 2020)

  void visit(OptionVisitor& visitor) override;
};

struct Sampled {
  std::int32_t id = 0;
  double log_probability = 0;  // of the model itself: temperature 1, nothing left out
};

// `uniform` in [0, 1) runs through the probabilities of what is kept, rescaled, in the order of ids; all in double.
// Throws Error when there are no logits, and for one that is not a number or infinite.
Sampled sample(std::span<const double> logits, const SamplingOptions& options, double uniform);

// The number that token `token` of sample `sample` is drawn with: Philox of (seed, "generate").
double sampling_uniform(std::uint64_t seed, std::int64_t token, std::int64_t sample);

}  // namespace tally
