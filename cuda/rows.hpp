// Kernels that work on whole rows (the last axis): a warp has a row, its lanes take every 32nd element, and what they
// have in common goes through registers. Sums are formed in double, by each lane and then between lanes in fixed order.
#pragma once

#include <cstdint>
#include <limits>

#include "core/loop.hpp"
#include "cuda/context.hpp"
#include "cuda/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr int warp_lanes = 32;
inline constexpr unsigned row_threads = 128;  // a block: four rows at a time

// Every lane gets the sum, or the largest, of all.
__device__ inline double warp_sum(double value) {
  for (int bit = 1; bit < warp_lanes; bit *= 2) value += __shfl_xor_sync(0xffffffffu, value, bit);
  return value;
}
template <class T>
__device__ T warp_max(T value) {
  for (int bit = 1; bit < warp_lanes; bit *= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, bit);
    value = other > value ? other : value;
  }
  return value;
}

// term(j) over j = 0 .. n - 1, for all lanes of a warp.
template <class Term>
__device__ double row_sum(std::int64_t n, int lane, Term&& term) {
  double sum = 0;
  for (std::int64_t j = lane; j < n; j += warp_lanes) sum += static_cast<double>(term(j));
  return warp_sum(sum);
}
// The largest; NaN are passed over.
template <class T, class Term>
__device__ T row_max(std::int64_t n, int lane, Term&& term) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = lane; j < n; j += warp_lanes) {
    const T value = term(j);
    largest = value > largest ? value : largest;
  }
  return warp_max(largest);
}

// The view of the first elements of all rows.
inline View leading_axes(const View& x) {
  View leading = x;
  --leading.shape.rank;
  return leading;
}
// Step along the last axis; 1 where there is no second element to step to.
inline std::int64_t row_step(const View& x) { return x.shape.back() <= 1 ? 1 : x.strides[x.shape.rank - 1]; }

template <class F>
__global__ void row_kernel(Loop<1> leading, std::int64_t rows, F f) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const std::int64_t warps = std::int64_t{blockDim.x} / warp_lanes;
  for (std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / warp_lanes; row < rows;
       row += std::int64_t{gridDim.x} * warps) {
    f(row, leading.element_offsets(row)[0], lane);
  }
}

// Messages name what is launched below by the line where the caller stands.
//
// f(row, offset, lane) by the 32 lanes of a warp for every row of x [..., N]; offset is that of the row's first
// element.
template <class F>
void for_each_row(const View& x, const F& f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const View leading = leading_axes(x);
  const std::int64_t rows = leading.numel();
  if (rows == 0) return;
  launch(row_kernel<F>, Grid(blocks_for(rows, row_threads / warp_lanes), file, line), row_threads, 0, context().stream,
         make_loop(leading.shape, leading), rows, f);
}

struct Sum {
  static constexpr double identity = 0.0;
  __device__ static double combine(double a, double b) { return a + b; }
};

// Where threads share the terms of a result, each writes what its part comes to; this puts the parts together, in
// order.
template <class Op, class T>
struct CombineParts {
  T* y;
  const double* partial;  // [parts][outputs]
  std::int64_t outputs, parts;
  __device__ void operator()(std::int64_t output) const {
    double result = Op::identity;
    for (std::int64_t part = 0; part < parts; ++part) result = Op::combine(result, partial[part * outputs + output]);
    y[output] = static_cast<T>(result);
  }
};

template <class F>
__global__ void index_kernel(std::int64_t count, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < count; n += step) f(n);
}

// f(n) for n = 0 .. count - 1, a thread each.
template <class F>
void for_each_index(std::int64_t count, const F& f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  constexpr unsigned threads = 128;
  if (count > 0)
    launch(index_kernel<F>, Grid(blocks_for(count, threads), file, line), threads, 0, context().stream, count, f);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
