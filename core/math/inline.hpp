// Inlining that is independent of the optimiser's heuristics.
#pragma once

#include "core/math/random.hpp"

// Forces inlining: functions called by a TALLY_CLONES function must become part of it. TALLY_INLINED follows the
// parameters of a lambda.
#define TALLY_INLINE [[gnu::always_inline]] TALLY_HOST_DEVICE inline
#define TALLY_INLINED __attribute__((always_inline))
