// The recurrence of an LSTM over all steps (formulas: core/cpu/lstm.cpp). Each block computes all steps of one
// sequence. Its threads synchronise after each half of a step; blocks never do. Every step reads the whole weight from
// the L2 cache, which determines its time. Few sequences leave most of the GPU idle, but one launch for all steps is
// far cheaper than two for each.
#include <algorithm>

#include "core/device/kernels.hpp"
#include "core/math/math.hpp"
#include "cuda/rows.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

// Threads per block: one per column if possible, in whole warps.
unsigned threads_for(std::int64_t columns) {
  constexpr std::int64_t most = 1024;
  return static_cast<unsigned>(std::min(most, (columns + warp_lanes - 1) / warp_lanes * warp_lanes));
}

template <class T>
struct Forward {
  T *y, *gates, *cells;
  const T *x, *by_columns, *hidden, *cell;
  std::int64_t length, width;
};

// Before a step's cells are computed, `gates` holds the sums.
template <class T>
__global__ void lstm_kernel(Forward<T> f) {
  const std::int64_t D = f.width, row = blockIdx.x;
  for (std::int64_t t = 0; t < f.length; ++t) {
    const std::int64_t step = row * f.length + t;
    const T* const earlier = t > 0 ? f.y + (step - 1) * D : f.hidden + row * D;
    const T* const before = t > 0 ? f.cells + (step - 1) * D : f.cell + row * D;
    T* const gates = f.gates + step * 4 * D;
    for (std::int64_t n = threadIdx.x; n < 4 * D; n += blockDim.x) {
      T sum = f.x[step * 4 * D + n];  // memory latency: several terms are loaded at once
      TALLY_UNROLL_BY(8)
      for (std::int64_t k = 0; k < D; ++k) sum += earlier[k] * f.by_columns[k * 4 * D + n];
      gates[n] = sum;
    }
    __syncthreads();
    for (std::int64_t j = threadIdx.x; j < D; j += blockDim.x) {
      const T i = math::sigmoid(gates[j]), forget = math::sigmoid(gates[j + D]), g = math::tanh(gates[j + 2 * D]);
      const T o = math::sigmoid(gates[j + 3 * D]), c = forget * before[j] + i * g;
      gates[j] = i;
      gates[j + D] = forget;
      gates[j + 2 * D] = g;
      gates[j + 3 * D] = o;
      f.cells[step * D + j] = c;
      f.y[step * D + j] = o * math::tanh(c);
    }
    __syncthreads();
  }
}

template <class T>
struct Backward {
  T *d_x, *d_hidden, *d_cell;
  const T *d_y, *gates, *cells, *weight, *cell;
  T* parts;  // [B, 4, D]: each gate's part of W^T d_a
  std::int64_t length, width;
};

template <class T>
__global__ void lstm_backward_kernel(Backward<T> b) {
  const std::int64_t D = b.width, row = blockIdx.x;
  T* const parts = b.parts + row * 4 * D;
  const auto from_later = [&](std::int64_t j) {
    return parts[j] + parts[j + D] + (parts[j + 2 * D] + parts[j + 3 * D]);
  };
  for (std::int64_t t = b.length; t-- > 0;) {
    const std::int64_t step = row * b.length + t;
    const T* const gates = b.gates + step * 4 * D;
    const T* const before = t > 0 ? b.cells + (step - 1) * D : b.cell + row * D;
    T* const d_a = b.d_x + step * 4 * D;
    const bool last = t + 1 == b.length;
    for (std::int64_t j = threadIdx.x; j < D; j += blockDim.x) {
      const T i = gates[j], f = gates[j + D], g = gates[j + 2 * D], o = gates[j + 3 * D];
      const T squashed = math::tanh(b.cells[step * D + j]);
      const T d_h = b.d_y[step * D + j] + (last ? T{0} : from_later(j));
      const T d_c = (last ? T{0} : b.d_cell[row * D + j]) + d_h * o * (T{1} - squashed * squashed);
      d_a[j] = d_c * g * i * (T{1} - i);
      d_a[j + D] = d_c * before[j] * f * (T{1} - f);
      d_a[j + 2 * D] = d_c * i * (T{1} - g * g);
      d_a[j + 3 * D] = d_h * squashed * o * (T{1} - o);
      b.d_cell[row * D + j] = d_c * f;
    }
    __syncthreads();
    for (std::int64_t n = threadIdx.x; n < 4 * D; n += blockDim.x) {
      const std::int64_t gate = n / D, k = n % D;
      T sum = 0;
      TALLY_UNROLL_BY(8)
      for (std::int64_t j = gate * D; j < (gate + 1) * D; ++j) sum += d_a[j] * b.weight[j * D + k];
      parts[n] = sum;
    }
    __syncthreads();
  }
  for (std::int64_t j = threadIdx.x; j < D; j += blockDim.x) b.d_hidden[row * D + j] = from_later(j);
}

}  // namespace

// The transposed weight, so that adjacent threads read adjacent elements.
std::int64_t lstm_workspace(View weight) { return weight.numel() * static_cast<std::int64_t>(size_of(weight.dtype)); }

void lstm(View y, View gates, View cells, View x, View weight, View hidden, View cell, void* workspace) {
  if (y.numel() == 0) return;
  const std::int64_t width = y.shape[2];
  View by_columns = weight;
  by_columns.data = workspace;
  by_columns.strides = {{1, 4 * width}};
  copy(by_columns, weight);
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lstm_kernel<T>, static_cast<unsigned>(y.shape[0]), threads_for(4 * width), 0, context().stream,
           Forward<T>{y.as<T>(), gates.as<T>(), cells.as<T>(), x.as<T>(), static_cast<const T*>(workspace),
                      hidden.as<T>(), cell.as<T>(), y.shape[1], width});
  });
}

std::int64_t lstm_backward_workspace(View d_hidden) {
  return 4 * d_hidden.numel() * static_cast<std::int64_t>(size_of(d_hidden.dtype));
}

void lstm_backward(View d_x, View d_hidden, View d_cell, View d_y, View gates, View cells, View weight, View cell,
                   void* workspace) {
  if (d_y.numel() == 0) {
    fill(d_hidden, 0);
    fill(d_cell, 0);
    return;
  }
  const std::int64_t width = d_y.shape[2];
  dispatch_floating(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lstm_backward_kernel<T>, static_cast<unsigned>(d_y.shape[0]), threads_for(4 * width), 0, context().stream,
           Backward<T>{d_x.as<T>(), d_hidden.as<T>(), d_cell.as<T>(), d_y.as<T>(), gates.as<T>(), cells.as<T>(),
                       weight.as<T>(), cell.as<T>(), static_cast<T*>(workspace), d_y.shape[1], width});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
