// What follows a product of f32 or f64 (ProductEnd::activation), done with rows of a block as soon as their sums are
// there, while they are in a core's own cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.hpp"
#include "core/cpu/strided.hpp"
#include "core/kernels.hpp"

namespace tally::cpu {

// y = op(x), d = d op'(v); of relu v may be its result. op: relu, gelu, gelu_tanh or silu.
template <class T>
void activate_row(UnaryOp op, T* y, const T* x, std::int64_t n);
template <class T>
void multiply_by_derivative(UnaryOp op, T* d, const T* v, std::int64_t n);

// total[j] = the sum over the blocks of sums[block n + j], j < n.
template <class T>
void add_blocks(T* total, const T* sums, std::int64_t blocks, std::int64_t n) {
  parallel_for_blocks(n, rows_per_tile(blocks), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      double sum = 0;
      for (std::int64_t block = 0; block < blocks; ++block) sum += static_cast<double>(sums[block * n + j]);
      total[j] = static_cast<T>(sum);
    }
  });
}

template <class T>
class ProductRows {
 public:
  // Of results with n columns whose rows are finished in `blocks` blocks; memory: count() numbers.
  ProductRows(const ProductEnd& end, std::int64_t blocks, std::int64_t n, T* memory)
      : end_(end), blocks_(blocks), n_(n), sums_(memory) {}
  static std::int64_t count(bool sums_columns, std::int64_t blocks, std::int64_t n) {
    return sums_columns ? blocks * n : 0;
  }
  bool is_given() const { return end_.activation != ProductEnd::Activation::none; }

  // Rows i to i + rows of columns j to j + columns, of the block of this number; c: the first of them, whose rows, as
  // those of the argument, lie ld apart.
  void finish(T* c, std::int64_t ld, std::int64_t block, std::int64_t i, std::int64_t rows, std::int64_t j,
              std::int64_t columns) const {
    T* const sums = end_.column_sums ? sums_ + block * n_ + j : nullptr;
    if (sums != nullptr) std::fill_n(sums, columns, T{0});
    for (std::int64_t row = 0; row < rows; ++row, c += ld) {
      T* const argument = end_.argument ? end_.argument.as<T>() + (i + row) * ld + j : nullptr;
      if (end_.activation == ProductEnd::Activation::apply) {
        if (argument != nullptr) std::copy_n(c, columns, argument);
        activate_row(end_.op, c, c, columns);
        continue;
      }
      multiply_by_derivative(end_.op, c, argument, columns);
      for (std::int64_t column = 0; sums != nullptr && column < columns; ++column) sums[column] += c[column];
    }
  }
  // After all blocks.
  void add_column_sums() const {
    if (end_.column_sums) add_blocks(end_.column_sums.as<T>(), sums_, blocks_, n_);
  }

 private:
  const ProductEnd& end_;
  std::int64_t blocks_, n_;
  T* sums_;
};

}  // namespace tally::cpu
