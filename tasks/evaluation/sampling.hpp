// Chooses the next token of a text from the model's logits.
#pragma once

#include <cstdint>
#include <span>

#include "nn/options.hpp"

namespace tally {

struct SamplingOptions final : OptionsOf<SamplingOptions> {
  double temperature = 1;  // divides the logits; 0: the largest logit, ties to the smallest id
  std::int64_t top_k = 0;  // only the k largest, ties to the smallest ids; 0: all
  double top_p = 1;        // of these the fewest largest whose probabilities sum to at least p (Holtzman et al. 2020)

  void visit(OptionVisitor& visitor) override;
};

struct Sampled {
  std::int32_t id = 0;
  double log_probability = 0;  // of the model: temperature 1, all tokens
};

// Samples by inversion: `uniform` in [0, 1) selects from the rescaled probabilities of the kept tokens, in the order of
// ids, all in double. Throws Error if there are no logits, or if a logit is not finite.
Sampled sample(std::span<const double> logits, const SamplingOptions& options, double uniform);

// The random number for token `token` of sample `sample`: Philox of (seed, "generate").
double sampling_uniform(std::uint64_t seed, std::int64_t token, std::int64_t sample);

}  // namespace tally
