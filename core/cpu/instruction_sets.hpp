// TALLY_FOR("v4") and TALLY_FOR("v3") before a function compile it for that level of x86-64 alone, with vectors as wide
// as its registers: for code that register_bytes() (core/cpu/matmul/microkernel_f32.hpp) chooses, where TALLY_CLONES
// would compile every width for every level. What such a function calls must be inlined into it. Undefined where there
// are no clones: on wider vectors than the baseline has registers for compilers spend minutes.
#pragma once

#include "core/cpu/parallel.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TALLY_SANITIZED)
#define TALLY_FOR(level) __attribute__((target("arch=x86-64-" level)))
#endif
