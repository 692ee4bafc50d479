// TALLY_FOR("v4") and TALLY_FOR("v3") before a function compile it only for that level of x86-64, with vectors as wide
// as its registers. Used for code that register_bytes() (core/cpu/matmul/microkernel_f32.hpp) chooses: TALLY_CLONES
// would compile every width for every level. All functions that it calls must be inlined into it. Undefined in builds
// without clones, because compilers spend minutes on vectors that are wider than the baseline's registers.
#pragma once

#include "core/cpu/parallel.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TALLY_SANITIZED)
#define TALLY_FOR(level) __attribute__((target("arch=x86-64-" level)))
#endif
