// The kinds of instructions that products of bf16 run on (core/cpu/bf16_tiles.hpp), for the tests of each.
#pragma once

#include <string>
#include <vector>

#include "core/cpu/bf16_tiles.hpp"

namespace tally::testing {

struct Bf16Kind {
  std::string name;
  const cpu::Bf16Tiles* tiles;
  bool halves;  // the order of AMX
};

// What runs here. Those of AMX itself only where it is.
inline std::vector<Bf16Kind> bf16_kinds() {
  std::vector<Bf16Kind> all{{"portable", &cpu::portable_tiles, false},
                            {"emulated AMX", &cpu::emulated_amx_tiles, true}};
#if defined(__x86_64__)
  if (cpu::has_avx512_bf16()) all.push_back({"AVX-512 BF16", &cpu::avx512_bf16_tiles, false});
  if (bf16_instructions().name == "AMX") all.push_back({"AMX", &cpu::amx_tiles, true});
#endif
  return all;
}

}  // namespace tally::testing
