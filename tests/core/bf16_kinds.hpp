// The kinds of instructions that products of bf16 run on (core/cpu/matmul/microkernel.hpp), for the tests of each.
#pragma once

#include <string>
#include <vector>

#include "core/cpu/matmul/microkernel.hpp"

namespace tally::testing {

struct Bf16Kind {
  std::string name;
  const cpu::Microkernel* kernel;
  bool halves;  // the order of AMX
};

// The kinds that run on this processor. AMX itself only if it has AMX.
inline std::vector<Bf16Kind> bf16_kinds() {
  std::vector<Bf16Kind> all{{"portable", &cpu::bf16_portable, false}, {"emulated AMX", &cpu::bf16_emulated_amx, true}};
#if defined(__x86_64__)
  if (cpu::has_avx512_bf16()) all.push_back({"AVX-512 BF16", &cpu::bf16_avx512, false});
  if (bf16_instructions().name == "AMX") all.push_back({"AMX", &cpu::bf16_amx, true});
#endif
  return all;
}

}  // namespace tally::testing
