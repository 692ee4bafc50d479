// Sums of a row's gradients times positions, which enlarge what rounding made of them.
//
// dl = a (da - do.o) of a softmax adds up to 0 in every row, or with a sink to what the sink leaves over, but for what
// rounding made of do.o and of the sum of weights. Times positions, which may be hundreds, that little is what limits
// the precision of a gradient. It is proportional to the weights: sums over a row are freed of it at the end, once what
// dl and a add up to is known.
#pragma once

#include <algorithm>

#include "core/cpu/attention_pair_loops.hpp"
#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// Sums over keys, for every lane: of the gradients dl of the logits and of the weights a, and of both times the
// position.
struct PositionSums {
  double *d, *d_p, *a, *a_p;
  PositionSums(double* memory, std::int64_t count)
      : d(memory), d_p(memory + count), a(memory + 2 * count), a_p(memory + 3 * count) {}
};

template <class T>
struct FewSums {
  alignas(64) T d[tile_rows], d_p[tile_rows], a[tile_rows], a_p[tile_rows];

  TALLY_INLINE void open(std::int64_t lanes) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) d[i] = d_p[i] = a[i] = a_p[i] = 0;
  }
  TALLY_INLINE void close(const PositionSums sums, std::int64_t first, std::int64_t lanes) const {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) {
      sums.d[first + i] += static_cast<double>(d[i]);
      sums.d_p[first + i] += static_cast<double>(d_p[i]);
      sums.a[first + i] += static_cast<double>(a[i]);
      sums.a_p[first + i] += static_cast<double>(a_p[i]);
    }
  }
};

// Adds those of a tile; sums: [tile_rows] each.
template <class T>
TALLY_CLONES void add_to_row_sums(const PositionSums sums, const T* d, const T* weight, const T* position,
                                  std::int64_t keys, std::int64_t lanes) {
  FewSums<T> few;
  for (std::int64_t first = 0; first < keys; first += few_keys) {
    few.open(lanes);
    for (std::int64_t j = first; j < std::min(keys, first + few_keys); ++j) {
      const std::int64_t row = j * tile_rows;
#pragma omp simd
      for (std::int64_t i = 0; i < lanes; ++i) {
        few.d[i] += d[row + i];
        few.d_p[i] += d[row + i] * position[row + i];
        few.a[i] += weight[row + i];
        few.a_p[i] += weight[row + i] * position[row + i];
      }
    }
    few.close(sums, 0, lanes);
  }
}

// Sums of the rows of a tile.
class RowSums {
 public:
  void open() { std::fill_n(memory_, 4 * tile_rows, 0.0); }
  PositionSums sums() { return {memory_, tile_rows}; }
  // The sum of x dl of a row, from that as rounded and the sum of x a. expected: what dl adds up to in the rows; null
  // where that is not known.
  template <class T>
  double balanced(std::int64_t row, const T* expected, double of_d, double of_a) {
    if (expected == nullptr || sums().a[row] == 0) return of_d;
    return of_d - (sums().d[row] - static_cast<double>(expected[row])) / sums().a[row] * of_a;
  }

 private:
  double memory_[4 * tile_rows];
};

}  // namespace tally::cpu
