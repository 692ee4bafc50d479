// Policies that tests have beside those of encodings.
#pragma once

#include "core/attention/policy.hpp"

namespace tally::testing {

// Keys with a score above a number of the row count, and others have no weight.
const PairPolicy& threshold_policy();
// Reads all that there is to read, and sums without the key's own gate.
const PairPolicy& reading_policy();
// No sum, after biases.
const PairPolicy& bounded_policy();
// Divides by a number of the query.
const PairPolicy& divided_policy();
// A table at a place of its own, made of all that there is, whose entry multiplies what it meets.
const PairPolicy& graded_policy();
// A table by the logarithm of the distance, without a sum.
const PairPolicy& binned_policy();
// A table between knots, without a sum, at a place of the score and of what all pairs at a distance share.
const PairPolicy& bent_policy();
// Gates of p.other: the score and the row's number are only compared.
const PairPolicy& apart_policy();
// Neither the score nor what biases add to it is read.
const PairPolicy& overruled_policy();

}  // namespace tally::testing
