// Makes a score modification (core/attention/score_mod.hpp has the definition and examples) usable in attention.
//
// After its struct, outside any namespace, write TALLY_SCORE_MOD(stem, Struct). It compiles the struct for the CPU and
// for tensors, and defines tally::score_mod_<stem> for AppliedScoreMod::mod of autograd/score.hpp. The build compiles a
// file with this line again for CUDA, with TALLY_SCORE_MOD_ONLY. Enclose all code except score modifications in #ifndef
// TALLY_SCORE_MOD_ONLY and #endif.
#pragma once

#include "core/attention/score_mod.hpp"

namespace tally {

using attention::head;
using attention::minus_infinity;
using attention::row;

}  // namespace tally

#ifdef TALLY_SCORE_MOD_ONLY

#define TALLY_SCORE_MOD(stem, Mod) TALLY_SCORE_MOD_AGAIN(stem, Mod)

#else

#include "autograd/score_mod_tensors.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

// Set by core/cmake/score_mods.cmake if the file is also compiled for more instruction sets, as CUDA, and by nvcc.
#ifdef TALLY_SCORE_MOD_SETS
#define TALLY_SCORE_MOD_LOOPS(set, stem) &tally::cpu::set::score_mod_##stem
#else
#define TALLY_SCORE_MOD_LOOPS(set, stem) nullptr
#endif
#ifdef TALLY_WITH_CUDA_HOST
#define TALLY_SCORE_MOD_HOST(stem) &tally::cuda_host::registry::score_mod_##stem
#else
#define TALLY_SCORE_MOD_HOST(stem) nullptr
#endif
#ifdef TALLY_WITH_CUDA
#define TALLY_SCORE_MOD_CUDA(stem) &tally::cuda::registry::score_mod_##stem
#else
#define TALLY_SCORE_MOD_CUDA(stem) nullptr
#endif

#define TALLY_SCORE_MOD_DECLARE(space, Type, stem) \
  namespace tally::space {                         \
  extern const Type score_mod_##stem;              \
  }

// The traits come first: their sentences are then the first errors of a wrong score modification.
#define TALLY_SCORE_MOD(stem, Mod)                                                               \
  TALLY_SCORE_MOD_DECLARE(cpu::v4, ScoreModLoops, stem)                                          \
  TALLY_SCORE_MOD_DECLARE(cpu::v3, ScoreModLoops, stem)                                          \
  TALLY_SCORE_MOD_DECLARE(cuda_host::registry, ScoreModKernels, stem)                            \
  TALLY_SCORE_MOD_DECLARE(cuda::registry, ScoreModKernels, stem)                                 \
  namespace tally {                                                                              \
  constexpr ScoreModTraits score_mod_traits_##stem = attention::traits_of<Mod>;                  \
  constinit static const ScoreModLoops score_mod_loops_##stem = cpu::score_mod_loops<16, Mod>(); \
  constinit static const ScoreMod score_mod_##stem{#stem,                                        \
                                                   score_mod_traits_##stem,                      \
                                                   &score_mod_loops_##stem,                      \
                                                   TALLY_SCORE_MOD_LOOPS(v4, stem),              \
                                                   TALLY_SCORE_MOD_LOOPS(v3, stem),              \
                                                   TALLY_SCORE_MOD_HOST(stem),                   \
                                                   TALLY_SCORE_MOD_CUDA(stem),                   \
                                                   &score_mod_on_tensors<Mod>};                  \
  }                                                                                              \
  static_assert(true)

#endif
