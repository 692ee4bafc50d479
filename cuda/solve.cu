// Triangular systems (formulas: core/cpu/solve.cpp). A thread computes one column of one right-hand side, row by row.
// Neighbouring threads access neighbouring elements, and the same number of L.
#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct SolveColumn {
  T* y;
  const T *l, *given;
  std::int64_t rows, width;

  __device__ void operator()(std::int64_t column) const {
    const std::int64_t system = column / width, first = system * rows * width + column % width;
    const T* const own = l + system * rows * rows;
    for (std::int64_t i = 0; i < rows; ++i) {
      T sum = given[first + i * width];
      for (std::int64_t j = 0; j < i; ++j) sum -= own[i * rows + j] * y[first + j * width];
      y[first + i * width] = sum;
    }
  }
};

template <class T>
struct SolveColumnBack {
  T* d_given;
  const T *l, *d_y;
  std::int64_t rows, width;

  __device__ void operator()(std::int64_t column) const {
    const std::int64_t system = column / width, first = system * rows * width + column % width;
    const T* const own = l + system * rows * rows;
    for (std::int64_t i = rows; i-- > 0;) {
      T sum = d_y[first + i * width];
      for (std::int64_t j = i + 1; j < rows; ++j) sum -= own[j * rows + i] * d_given[first + j * width];
      d_given[first + i * width] = sum;
    }
  }
};

template <class T>
struct LowerGradient {
  T* d_l;
  const T *d_given, *y;
  std::int64_t rows, width;

  __device__ void operator()(std::int64_t n) const {
    const std::int64_t i = n / rows % rows, j = n % rows, system = n / (rows * rows);
    const T *const left = d_given + (system * rows + i) * width, *const right = y + (system * rows + j) * width;
    T sum = 0;
    for (std::int64_t c = 0; c < width && j < i; ++c) sum -= left[c] * right[c];
    d_l[n] = sum;
  }
};

}  // namespace

std::int64_t solve_unit_lower_workspace(View) { return 0; }
void solve_unit_lower(View y, View l, View given, void*) {
  if (y.numel() == 0) return;
  const std::int64_t rows = y.shape.back(1), width = y.shape.back();
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_index(y.numel() / rows, SolveColumn<T>{y.as<T>(), l.as<T>(), given.as<T>(), rows, width});
  });
}

std::int64_t solve_unit_lower_backward_workspace(View) { return 0; }
void solve_unit_lower_backward(View d_l, View d_given, View d_y, View l, View y, void*) {
  if (d_l.numel() == 0) return;
  const std::int64_t rows = y.shape.back(1), width = y.shape.back();
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_index(d_given.numel() / rows, SolveColumnBack<T>{d_given.as<T>(), l.as<T>(), d_y.as<T>(), rows, width});
    for_each_index(d_l.numel(), LowerGradient<T>{d_l.as<T>(), d_given.as<T>(), y.as<T>(), rows, width});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
