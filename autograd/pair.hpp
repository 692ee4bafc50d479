// Custom score shapes: makes a pair policy (definition and example: core/attention/pair.hpp) usable in attention.
//
// After the policy's struct, outside any namespace, write TALLY_PAIR(stem, Policy). It compiles the policy for the CPU
// and for tensors, and defines tally::pair_<stem> for Pair::policy of autograd/score.hpp. The build compiles a file
// with this line a second time for CUDA, with TALLY_PAIR_ONLY. Enclose all code except policies in #ifndef
// TALLY_PAIR_ONLY and #endif.
#pragma once

#include "core/attention/pair.hpp"

namespace tally {

using attention::head;
using attention::minus_infinity;
using attention::row;

}  // namespace tally

#ifdef TALLY_PAIR_ONLY

#define TALLY_PAIR(stem, Policy) TALLY_PAIR_AGAIN(stem, Policy)

#else

#include "autograd/pair_tensors.hpp"
#include "core/attention/pair_inputs.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

// Set by core/cmake/pairs.cmake if the file is also compiled for more instruction sets, as CUDA, and by nvcc.
#ifdef TALLY_PAIR_SETS
#define TALLY_PAIR_LOOPS(set, stem) &tally::cpu::set::pair_##stem
#else
#define TALLY_PAIR_LOOPS(set, stem) nullptr
#endif
#ifdef TALLY_WITH_CUDA_HOST
#define TALLY_PAIR_OF_HOST(stem) &tally::cuda_host::registry::pair_##stem
#else
#define TALLY_PAIR_OF_HOST(stem) nullptr
#endif
#ifdef TALLY_WITH_CUDA
#define TALLY_PAIR_OF_CUDA(stem) &tally::cuda::registry::pair_##stem
#else
#define TALLY_PAIR_OF_CUDA(stem) nullptr
#endif

#define TALLY_PAIR_DECLARE(space, Type, stem) \
  namespace tally::space {                    \
  extern const Type pair_##stem;              \
  }

#define TALLY_PAIR(stem, Policy)                                                       \
  TALLY_PAIR_DECLARE(cpu::v4, PairLoops, stem)                                         \
  TALLY_PAIR_DECLARE(cpu::v3, PairLoops, stem)                                         \
  TALLY_PAIR_DECLARE(cuda_host::registry, PairKernels, stem)                           \
  TALLY_PAIR_DECLARE(cuda::registry, PairKernels, stem)                                \
  namespace tally {                                                                    \
  constinit static const PairLoops pair_loops_##stem = cpu::pair_loops<16, Policy>();  \
  constinit static const PairPolicy pair_##stem{#stem,                                 \
                                                Policy::needs,                         \
                                                &pair_loops_##stem,                    \
                                                TALLY_PAIR_LOOPS(v4, stem),            \
                                                TALLY_PAIR_LOOPS(v3, stem),            \
                                                TALLY_PAIR_OF_HOST(stem),              \
                                                TALLY_PAIR_OF_CUDA(stem),              \
                                                &pair_on_tensors<Policy>,              \
                                                attention::inputs_of_logit<Policy>()}; \
  }                                                                                    \
  static_assert(true)

#endif
