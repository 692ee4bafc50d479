// Copies of matrices whose rows become columns.
#pragma once

#include <cstdint>

namespace tally::cpu {

// y[c][r] = factor x[r][c] of so many rows and columns of x; rows lie ld_y and ld_x apart.
template <class T>
void copy_transposed(T* y, std::int64_t ld_y, const T* x, std::int64_t ld_x, std::int64_t rows, std::int64_t columns,
                     T factor);

}  // namespace tally::cpu
