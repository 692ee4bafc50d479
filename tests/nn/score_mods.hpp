// Score modifications of tests only.
#pragma once

#include "core/attention/score_mod_traits.hpp"

namespace tally::testing {

// Keys with a score above a number of the row count, and others have no weight.
const ScoreMod& threshold_score_mod();
// Reads all that there is to read, and sums without the key's own gate.
const ScoreMod& reading_score_mod();
// No sum, after biases.
const ScoreMod& bounded_score_mod();
// Divides by a number of the query.
const ScoreMod& divided_score_mod();
// A table at a place of its own, made of all that there is, whose entry multiplies what it meets.
const ScoreMod& graded_score_mod();
// A table by the logarithm of the distance, without a sum.
const ScoreMod& binned_score_mod();
// A table between knots, without a sum, at a place of the score and of what all pairs at a distance share.
const ScoreMod& bent_score_mod();
// Gates of p.gate_logit: the score and the row's number are only compared.
const ScoreMod& apart_score_mod();
// Neither the score nor what biases add to it is read.
const ScoreMod& overruled_score_mod();

}  // namespace tally::testing
