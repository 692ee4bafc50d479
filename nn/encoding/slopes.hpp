// Slopes of heads for attention with linear biases (ALiBi, arXiv 2108.12409, section 3), h = 1..H:
//   m_h = 2^(-8h/H) for H a power of two; else, with H0 the largest power of two below H, the H0 slopes, then the 1st,
//   3rd, 5th, ... of the 2 H0 slopes (the released code's rule)
#pragma once

#include <cstdint>
#include <vector>

namespace tally {

std::vector<double> alibi_slopes(std::int64_t heads);

}  // namespace tally
