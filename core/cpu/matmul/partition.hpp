// How a matmul is cut into blocks, one for a thread at a time, and its long sums into parts (split-K). The shape and
// the microkernel decide, never the number of threads, so the bits do not depend on it either.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/matmul/microkernel.hpp"
#include "core/cpu/parallel.hpp"

namespace tally::cpu {

struct Partition {
  std::int64_t matrices, m, n, k;
  std::int64_t splits = 1, split = 0;  // parts of each sum, and the length of all but the last
  std::int64_t rows = 0, columns = 0;  // of a block
  std::int64_t step = 0;               // numbers along k that are packed at a time
  bool shares_b = false;               // all panels of B are packed once, before the blocks

  // kernel: null for OpenBLAS, which packs its operands. whole_sums: never split.
  Partition(const Microkernel* kernel, std::int64_t of_matrices, std::int64_t of_m, std::int64_t of_n,
            std::int64_t of_k, bool whole_sums)
      : matrices(of_matrices), m(of_m), n(of_n), k(of_k) {
    constexpr std::int64_t enough = 4;  // blocks, two per thread on two threads, for load balance
    // Few long sums, as in the gradient of a weight, where K counts all tokens.
    constexpr std::int64_t shortest_split = 1024;
    const bool long_sums = !whole_sums && matrices < enough && k >= 4 * std::max(m, n);
    if (long_sums) splits = std::clamp<std::int64_t>(k / shortest_split, 1, enough);
    split = round_up(std::max<std::int64_t>(1, divide_up(k, splits)), 2 * bf16_pairs);
    splits = std::max<std::int64_t>(1, divide_up(k, split));
    kernel != nullptr ? cut_for_caches(*kernel, enough) : cut_for_blas(enough);
  }
  std::int64_t row_blocks() const { return divide_up(m, rows); }
  std::int64_t column_blocks() const { return divide_up(n, columns); }
  std::int64_t blocks() const { return matrices * splits * row_blocks() * column_blocks(); }

 private:
  // The packed rows of A and the panels of B that meet them stay in a core's own cache.
  void cut_for_caches(const Microkernel& kernel, std::int64_t enough) {
    constexpr std::int64_t whole_tiles = 96;     // a multiple of every microkernel's rows
    constexpr std::int64_t most_columns = 1024;  // the sums of a block stay in a cache, too
    shares_b = matrices < enough && splits == 1;
    // A block that packs B for itself needs many rows to make up for it, one of a long sum most.
    const std::int64_t most_rows = shares_b ? 96 : splits == 1 ? 384 : kernel.numbers == 2 ? 1152 : 384;
    rows = round_up(divide_up(m, divide_up(m, most_rows)), whole_tiles);
    columns = std::min(round_up(n, kernel.columns), most_columns);
    while (shares_b && columns >= 2 * kernel.columns && matrices * row_blocks() * column_blocks() < enough) {
      columns = round_up(columns / 2, kernel.columns);
    }
    step = kernel.numbers == 2 ? 1024 : 256;
    while (step > 256 && step * rows > (std::int64_t{1} << 18)) step /= 2;
  }

  // Long sides: each call packs its part of A and B, which takes more than 5 % of the time below the least sides here.
  void cut_for_blas(std::int64_t enough) {
    constexpr std::int64_t least_rows = 256, least_columns = 512, most = 1024;
    rows = m, columns = n, step = split;
    while (splits == 1 && (std::max(rows, columns) > most || matrices * row_blocks() * column_blocks() < enough)) {
      std::int64_t& side = rows >= columns ? rows : columns;
      if (side < 2 * (rows >= columns ? least_rows : least_columns)) break;
      side = round_up(divide_up(side, 2), 16);
    }
  }
};

}  // namespace tally::cpu
