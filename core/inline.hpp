// Inlining that does not wait for the optimiser's opinion.
#pragma once

#include "core/random.hpp"

// Inlined whatever the optimiser thinks: what a function with TALLY_CLONES calls must become part of it. TALLY_INLINED
// stands after the parameters of a lambda.
#define TALLY_INLINE [[gnu::always_inline]] TALLY_HOST_DEVICE inline
#define TALLY_INLINED __attribute__((always_inline))
