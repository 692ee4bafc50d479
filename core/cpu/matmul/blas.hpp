// Single-threaded matrix products of OpenBLAS, which is loaded while the program runs: the kernels it uses are chosen
// by an environment variable that it reads while it loads, and its own choice can be several times slower.
#pragma once

#include <string>

namespace tally {

struct BlasInfo {
  std::string path;    // file the library came from
  std::string config;  // its version and how it was built
  std::string core;    // processor type whose kernels it uses, e.g. "SkylakeX"
};

// Loads the library if that has not happened. Throws Error when none is found.
BlasInfo blas_info();

namespace cpu {

// Loads the library. Called before a parallel region, as Error cannot leave one.
void load_blas();

// c [m, n] = alpha op(a) [m, k] op(b) [k, n] + beta c on the calling thread, T float or double; all row-major with rows
// ld_ apart; op(x) = x, or x^T where transposed. beta 0: c is not read. Any number of threads may call at once.
template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int m, int n, int k, T alpha, const T* a, int ld_a, const T* b,
               int ld_b, T beta, T* c, int ld_c);

}  // namespace cpu
}  // namespace tally
