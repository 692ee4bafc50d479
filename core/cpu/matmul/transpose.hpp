// Transposed copies of matrices.
#pragma once

#include <cstdint>

namespace tally::cpu {

// y[c][r] = factor x[r][c] for rows r and columns c of x, with rows ld_y and ld_x apart.
template <class T>
void copy_transposed(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows, std::int64_t columns,
                     T factor);

}  // namespace tally::cpu
