// Sum and maximum over any set of axes of x with any strides, the index of the largest element, and the sum of squares.
// Neighbouring threads read neighbouring elements. If those elements are kept in y, each thread has one of them, for a
// part of the reduced terms (the sums of columns, for the gradients of biases). It has all terms if y already gives
// enough threads. Otherwise a warp computes each element. Every number is formed in double in an order that depends
// only on the shape.
#include "core/device/kernels.hpp"
#include "cuda/reduce.hpp"
#include "cuda/rows.hpp"
#include "cuda/tensor_list.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

// NaN wins.
struct Maximum {
  static constexpr double identity = -std::numeric_limits<double>::infinity();
  __device__ static double combine(double a, double b) { return (a > b || a != a) ? a : b; }
};

// Loops over the kept axes, of x and y, and over the reduced axes of x.
struct Axes {
  Loop<2> kept;
  Loop<1> reduced;
  std::int64_t outputs, terms;
};

Axes split_axes(const View& y, const View& x) {
  View kept, kept_y, reduced;
  const auto append = [](View& group, const View& from, int axis) {
    group.strides[group.shape.rank] = from.strides[axis];
    group.shape.append(from.shape[axis]);
  };
  for (int axis = 0; axis < x.shape.rank; ++axis) {
    const bool stays = y.shape[axis] == x.shape[axis];
    append(stays ? kept : reduced, x, axis);
    if (stays) append(kept_y, y, axis);
  }
  return {make_loop(kept.shape, kept, kept_y), make_loop(reduced.shape, reduced), y.numel(), reduced.shape.numel()};
}

template <class Op, class To, class From>
struct ReduceByThread {
  To* y;
  const From* x;
  Axes axes;
  __device__ void operator()(std::int64_t output) const {
    const auto [first, target] = axes.kept.element_offsets(output);
    double result = Op::identity;
    for (std::int64_t n = 0; n < axes.terms; ++n) {
      result = Op::combine(result, static_cast<double>(x[first + axes.reduced.element_offsets(n)[0]]));
    }
    y[target] = static_cast<To>(result);
  }
};

constexpr std::int64_t part_terms = 64;  // terms per thread in a large reduction

template <class Op, class T>
struct ReducePart {
  double* partial;  // [parts][outputs]
  const T* x;
  Axes axes;
  __device__ void operator()(std::int64_t thread) const {
    const std::int64_t part = thread / axes.outputs, first = part * part_terms;
    const std::int64_t end = first + part_terms < axes.terms ? first + part_terms : axes.terms;
    const T* const own = x + axes.kept.element_offsets(thread % axes.outputs)[0];
    double result = Op::identity;
    if (axes.reduced.rank == 1) {  // without divisions, several loads can be in flight
      const std::int64_t step = axes.reduced.inner_step()[0];
      TALLY_UNROLL_BY(8)
      for (std::int64_t n = first; n < end; ++n) result = Op::combine(result, static_cast<double>(own[n * step]));
    } else {
      for (std::int64_t n = first; n < end; ++n) {
        result = Op::combine(result, static_cast<double>(own[axes.reduced.element_offsets(n)[0]]));
      }
    }
    partial[thread] = result;
  }
};

template <class Op, class To, class From>
struct ReduceByWarp {
  To* y;
  const From* x;
  Axes axes;
  __device__ void operator()(std::int64_t thread) const {
    const std::int64_t output = thread / warp_lanes;
    const auto [first, target] = axes.kept.element_offsets(output);
    double result = Op::identity;
    for (std::int64_t n = thread % warp_lanes; n < axes.terms; n += warp_lanes) {
      result = Op::combine(result, static_cast<double>(x[first + axes.reduced.element_offsets(n)[0]]));
    }
    for (int bit = 1; bit < warp_lanes; bit *= 2) {
      const double other = __shfl_xor_sync(0xffffffffu, result, bit);
      result = thread & bit ? Op::combine(other, result) : Op::combine(result, other);
    }
    if (thread % warp_lanes == 0) y[target] = static_cast<To>(result);
  }
};

constexpr std::int64_t enough_threads = 1 << 18;  // enough to saturate the memory of any GPU

// Whether neighbouring threads, each with one element of y, read neighbouring elements.
bool side_by_side(const Axes& axes) { return axes.kept.inner_step()[0] == 1 && axes.outputs >= warp_lanes; }

// Without scratch for parts.
template <class Op, class To, class From>
void reduce_whole(const View& y, const View& x, const Axes& axes) {
  if (axes.terms < warp_lanes || (side_by_side(axes) && axes.outputs >= enough_threads / warp_lanes)) {
    for_each_index(axes.outputs, ReduceByThread<Op, To, From>{y.as<To>(), x.as<From>(), axes});
  } else {
    for_each_index(axes.outputs * warp_lanes, ReduceByWarp<Op, To, From>{y.as<To>(), x.as<From>(), axes});
  }
}

// The number of parts that each element of y is formed in; 0: whole.
std::int64_t parts_of(const Axes& axes) {
  if (!side_by_side(axes) || axes.terms <= part_terms || axes.outputs >= enough_threads) return 0;
  return (axes.terms + part_terms - 1) / part_terms;
}

template <class Op>
void reduce_with(const View& y, const View& x, double* partial) {
  const Axes axes = split_axes(y, x);
  dispatch_mixed(y.dtype, x.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using X = decltype(mixed);
    const std::int64_t parts = parts_of(axes);
    if (parts == 0) return reduce_whole<Op, T, X>(y, x, axes);
    for_each_index(parts * axes.outputs, ReducePart<Op, X>{partial, x.as<X>(), axes});
    for_each_index(axes.outputs, CombineParts<Op, T>{y.as<T>(), partial, axes.outputs, parts});
  });
}

template <class T>
struct ArgmaxRow {
  std::int64_t* index;
  const T* x;
  std::int64_t width, step;
  template <class Threads>
  __device__ void operator()(std::int64_t row, std::int64_t offset, Threads threads) const {
    Largest<T> largest;
    for (std::int64_t j = threads.index; j < width; j += Threads::count) largest.add(x[offset + j * step], j);
    const std::int64_t best = largest.index_of_row(threads);
    if (threads.index == 0) index[row] = best;
  }
};

// For several tensors. data: x, result
template <class T>
struct SquaresOfWarp {
  double* partial;  // [blocks of the list][warps]
  __device__ void operator()(const TensorList<2>& list, int group, std::int64_t first, std::int64_t count) const {
    const T* const x = static_cast<const T*>(list.data[group][0]) + first;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const auto element = static_cast<double>(x[i]);
      sum += element * element;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warp_lanes == 0) partial[(blockIdx.x * blockDim.x + threadIdx.x) / warp_lanes] = sum;
  }
};

constexpr std::int64_t list_warps = list_threads / warp_lanes;

struct AddWarps {
  TensorList<2> list;
  const double* partial;
  __device__ void operator()(std::int64_t thread) const {
    const int group = static_cast<int>(thread / warp_lanes), lane = static_cast<int>(thread % warp_lanes);
    const std::int64_t first = list.first_of(group) * list_warps, end = list.end[group] * list_warps;
    const double sum = row_sum(end - first, WarpOfRow{lane}, [&](std::int64_t n) { return partial[first + n]; });
    if (lane == 0) *static_cast<double*>(list.data[group][1]) = sum;
  }
};

}  // namespace

std::int64_t reduce_workspace(View y, View x) {
  const Axes axes = split_axes(y, x);
  return parts_of(axes) * axes.outputs * static_cast<std::int64_t>(sizeof(double));
}

void reduce(ReduceOp op, View y, View x, void* workspace) {
  auto* const partial = static_cast<double*>(workspace);
  switch (op) {
    case ReduceOp::sum: return reduce_with<Sum>(y, x, partial);
    case ReduceOp::maximum: return reduce_with<Maximum>(y, x, partial);
  }
}

void sum_doubles(const View& y, const View& x) {
  const Axes axes = split_axes(y, x);
  dispatch_floating(y.dtype, [&](auto type) { reduce_whole<Sum, decltype(type), double>(y, x, axes); });
}

void argmax(View index, View x) {
  dispatch_floating(x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_long_row(x, ArgmaxRow<T>{index.as<std::int64_t>(), x.as<T>(), x.shape.back(), row_step(x)});
  });
}

// Lists use it one after the other.
std::int64_t squared_norm_workspace(Views x) {
  std::int64_t most = 0;
  each_list<1>({x}, [&](const TensorList<1>&, std::int64_t blocks) { most = std::max(most, blocks); });
  return most * list_warps * static_cast<std::int64_t>(sizeof(double));
}

void squared_norm(Views results, Views x, void* workspace) {
  if (x.empty()) return;
  auto* const partial = static_cast<double*>(workspace);
  dispatch_floating(x[0].dtype, [&](auto type) {
    using T = decltype(type);
    each_list<2>({x, results}, [&](const TensorList<2>& list, std::int64_t blocks) {
      launch_list(list, blocks, SquaresOfWarp<T>{partial});
      for_each_index(list.count * warp_lanes, AddWarps{list, partial});
    });
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
