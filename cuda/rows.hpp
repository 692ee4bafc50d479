// Kernels that work on whole rows (the last axis): one warp per row. Its lanes take every 32nd element, and combine
// their results through registers. Sums are formed in double, by each lane and then between lanes in fixed order.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/loop.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr int warp_lanes = 32;
inline constexpr unsigned row_threads = 128;  // per block: four rows at a time

// Every lane gets the sum, or the largest, over all lanes.
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

// The sum of term(j) over j = 0 .. n - 1, for all lanes of a warp.
template <class Term>
__device__ double row_sum(std::int64_t n, int lane, Term&& term) {
  double sum = 0;
  for (std::int64_t j = lane; j < n; j += warp_lanes) sum += static_cast<double>(term(j));
  return warp_sum(sum);
}
// The largest; NaN are ignored.
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
// Stride of the last axis; 1 if there is no second element.
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

// Error messages name launches below by the caller's line.
//
// Calls f(row, offset, lane) on the 32 lanes of a warp for every row of x [..., N]; offset is the row's first element.
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

// If several threads share the terms of a result, each writes a partial result; this combines the parts in order.
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

// f(n) for n = 0 .. count - 1, one thread each.
template <class F>
void for_each_index(std::int64_t count, const F& f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  constexpr unsigned threads = 128;
  if (count > 0)
    launch(index_kernel<F>, Grid(blocks_for(count, threads), file, line), threads, 0, context().stream, count, f);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
