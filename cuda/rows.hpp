// Kernels that work on whole rows (the last axis). A warp or, for long rows, a block works on each row: its threads
// take every 32nd or 256th element, and then combine their results. Sums are formed in double, by each thread and then
// between threads in fixed order.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/loop.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

inline constexpr int warp_lanes = 32;
inline constexpr unsigned row_threads = 128;  // per block where warps work on rows: four rows at a time

struct Sum {
  static constexpr double identity = 0.0;
  template <class T>
  __device__ static T combine(T a, T b) {
    return a + b;
  }
};
// The larger; a NaN in b is ignored.
struct Larger {
  template <class T>
  __device__ static T combine(T a, T b) {
    return b > a ? b : a;
  }
};

// Every lane gets the combination of the values of all lanes.
template <class Op, class T>
__device__ T combine_warp(T value) {
  for (int bit = 1; bit < warp_lanes; bit *= 2) value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, bit));
  return value;
}
__device__ inline double warp_sum(double value) { return combine_warp<Sum>(value); }

// The threads that work on one row together: thread `index` of `count`. combine() gives all of them the combination of
// their values. No thread returns from sync() before all have read their elements of the row.
struct WarpOfRow {
  static constexpr int count = warp_lanes;
  int index;
  template <class Op, class T>
  __device__ T combine(T value) const {
    return combine_warp<Op>(value);
  }
  __device__ void sync() const { __syncwarp(); }
};
struct BlockOfRow {
  static constexpr int count = 256;
  int index;
  template <class Op, class T>
  __device__ T combine(T value) const {
    constexpr int warps = count / warp_lanes;
    SHARED(T, parts, warps);
    value = combine_warp<Op>(value);
    __syncthreads();  // parts of the call before have been read
    if (index % warp_lanes == 0) parts[index / warp_lanes] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < warps; ++warp) value = Op::combine(value, parts[warp]);
    return value;
  }
  __device__ void sync() const { __syncthreads(); }
};

// The sum of term(j) over j = 0 .. n - 1, for all threads of a row.
template <class Threads, class Term>
__device__ double row_sum(std::int64_t n, Threads threads, Term&& term) {
  double sum = 0;
  for (std::int64_t j = threads.index; j < n; j += Threads::count) sum += static_cast<double>(term(j));
  return threads.template combine<Sum>(sum);
}
// The largest; NaN are ignored.
template <class T, class Threads, class Term>
__device__ T row_max(std::int64_t n, Threads threads, Term&& term) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t j = threads.index; j < n; j += Threads::count) largest = Larger::combine(largest, term(j));
  return threads.template combine<Larger>(largest);
}

// The largest element of a row and its index: the first of equal elements, and the first NaN if there is one.
template <class T>
struct Largest {
  T value = -std::numeric_limits<T>::infinity();
  std::int64_t index = 0;

  __device__ void add(T element, std::int64_t j) {
    if (!(element > value || (element != element && value == value))) return;
    value = element;
    index = j;
  }
  // The index, for all threads. Each must have added its elements in order.
  template <class Threads>
  __device__ std::int64_t index_of_row(Threads threads) const {
    const bool nan = threads.template combine<Larger>(value != value ? 1 : 0) != 0;
    const T largest = threads.template combine<Larger>(nan ? T{0} : value);
    const bool own = nan ? value != value : value == largest;
    return -threads.template combine<Larger>(own ? -index : std::numeric_limits<std::int64_t>::min());
  }
};

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
  const WarpOfRow threads{static_cast<int>(threadIdx.x) % warp_lanes};
  const std::int64_t warps = std::int64_t{blockDim.x} / warp_lanes;
  for (std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / warp_lanes; row < rows;
       row += std::int64_t{gridDim.x} * warps) {
    f(row, leading.element_offsets(row)[0], threads);
  }
}
template <class F>
__global__ void long_row_kernel(Loop<1> leading, std::int64_t rows, F f) {
  const BlockOfRow threads{static_cast<int>(threadIdx.x)};
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    f(row, leading.element_offsets(row)[0], threads);
  }
}

// Error messages name launches below by the caller's line.
//
// Calls f(row, offset, threads) for every row of x [..., N] on the 32 threads of a warp; offset is the row's first
// element.
template <class F>
void for_each_row(const View& x, const F& f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const View leading = leading_axes(x);
  const std::int64_t rows = leading.numel();
  if (rows == 0) return;
  launch(row_kernel<F>, Grid(blocks_for(rows, row_threads / warp_lanes), file, line), row_threads, 0, context().stream,
         make_loop(leading.shape, leading), rows, f);
}
// The same on the 256 threads of a block where rows have at least 1,024 elements, such as logits of a vocabulary.
template <class F>
void for_each_long_row(const View& x, const F& f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (x.shape.back() < 4 * BlockOfRow::count) return for_each_row(x, f, file, line);
  const View leading = leading_axes(x);
  const std::int64_t rows = leading.numel();
  if (rows == 0) return;
  launch(long_row_kernel<F>, Grid(blocks_for(rows, 1), file, line), BlockOfRow::count, 0, context().stream,
         make_loop(leading.shape, leading), rows, f);
}

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
