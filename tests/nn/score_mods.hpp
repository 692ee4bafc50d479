// Score modifications of tests only.
#pragma once

#include "core/attention/score_mod_traits.hpp"

namespace tally::testing {

// Keys with a score above a number of the row count, and others have no weight.
const ScoreMod& threshold_score_mod();
// Reads every input, and sums without the key's own gate.
const ScoreMod& reading_score_mod();
// No sum, after biases.
const ScoreMod& bounded_score_mod();
// Divides by a number of the query.
const ScoreMod& divided_score_mod();
// A table at a position of its own, computed from every input. Its entry multiplies the score.
const ScoreMod& graded_score_mod();
// A table by the logarithm of the distance, without a sum.
const ScoreMod& binned_score_mod();
// A table between knots, without a sum, at a position computed from the score and a number for each distance.
const ScoreMod& bent_score_mod();
// Gates of p.gate_logit: the score and the row's number are only compared.
const ScoreMod& apart_score_mod();
// Reads neither the score nor the biases.
const ScoreMod& overruled_score_mod();

}  // namespace tally::testing
