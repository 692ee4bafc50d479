// A policy that sums down the queries, which no library file has.
#pragma once

#include "core/attention/policy.hpp"

namespace tally::testing {

// l_ij = s_ij - m sum_{j<k<i} 0.02 sigmoid(s_kj), m a number of the head
const PairPolicy& masking_policy();

}  // namespace tally::testing
