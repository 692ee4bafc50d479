// The recurrence of an LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000), over all steps
// in one call. With the products of the inputs x_t [4D], gates in the order i, f, g, o:
//   (a_i, a_f, a_g, a_o) = x_t + W h_{t-1},  i, f, o = sigmoid(a),  g = tanh(a_g)
//   c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)
// Backward, from the last step to the first, with d_h = d_y_t + W^T d_a_{t+1} and d_c carried along:
//   d_c += d_h o (1 - tanh(c_t)^2),  d_o = d_h tanh(c_t),  d_i = d_c g,  d_f = d_c c_{t-1},  d_g = d_c i,  d_c <- d_c f
//   d_a = d_gate times the derivative of its sigmoid or tanh
//
// A step needs the whole previous step, but sequences are independent: each thread takes a few sequences through all
// steps, without synchronisation. The sequences of a thread share each row of W that it reads.
#include <algorithm>

#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/dtype.hpp"
#include "core/math/math.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t tile_rows = 6;  // sequences: the rows of a block of gemm_microkernel

// The columns from `first` on that fill no whole vector.
template <class T>
TALLY_CLONES void add_remainder(std::int64_t rows, T* y, std::int64_t step_y, const T* a, std::int64_t step_a,
                                const T* w, std::int64_t k, std::int64_t n, std::int64_t first) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t l = 0; l < k; ++l) {
      const T factor = a[r * step_a + l];
#pragma omp simd
      for (std::int64_t j = first; j < n; ++j) y[r * step_y + j] += factor * w[l * n + j];
    }
  }
}

// y [rows, n] = b [rows, n] + a [rows, k] w [k, n]; rows of y, b and a have strides of their own. y may be b.
template <class T>
void multiply(std::int64_t rows, T* y, std::int64_t step_y, const T* b, std::int64_t step_b, const T* a,
              std::int64_t step_a, const T* w, std::int64_t k, std::int64_t n) {
  for (std::int64_t r = 0; r < rows && y != b; ++r) std::copy_n(b + r * step_b, n, y + r * step_y);
  const std::int64_t whole = n / vector_lanes<T> * vector_lanes<T>;
  gemm_microkernel(y, step_y, a, step_a, 1, w, n, rows, whole, k, true);
  add_remainder(rows, y, step_y, a, step_a, w, k, n, whole);
}

// One step of one sequence: turns its sums into the gates.
template <class T>
TALLY_CLONES void cell_step(T* y, T* gates, T* cell, const T* before, std::int64_t width) {
  T *const input = gates, *const forget = input + width, *const candidate = forget + width,
           *const output = candidate + width;
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) {
    const T i = math::sigmoid(input[j]), f = math::sigmoid(forget[j]), g = math::tanh(candidate[j]);
    const T o = math::sigmoid(output[j]), c = f * before[j] + i * g;
    input[j] = i;
    forget[j] = f;
    candidate[j] = g;
    output[j] = o;
    cell[j] = c;
    y[j] = o * math::tanh(c);
  }
}

// d_h and d_cell are the gradients of this step's results; d_cell becomes the gradient of the previous step's cell.
template <class T>
TALLY_CLONES void cell_step_backward(T* d_a, T* d_cell, const T* d_h, const T* gates, const T* cell, const T* before,
                                     std::int64_t width) {
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) {
    const T i = gates[j], f = gates[j + width], g = gates[j + 2 * width], o = gates[j + 3 * width];
    const T squashed = math::tanh(cell[j]);
    const T d_c = d_cell[j] + d_h[j] * o * (T{1} - squashed * squashed);
    d_a[j] = d_c * g * i * (T{1} - i);
    d_a[j + width] = d_c * before[j] * f * (T{1} - f);
    d_a[j + 2 * width] = d_c * i * (T{1} - g * g);
    d_a[j + 3 * width] = d_h[j] * squashed * o * (T{1} - o);
    d_cell[j] = d_c * f;
  }
}

}  // namespace

// The transposed weight: columns of the matmul are contiguous.
std::int64_t lstm_workspace(View weight) { return weight.numel() * static_cast<std::int64_t>(size_of(weight.dtype)); }

void lstm(View y, View gates, View cells, View x, View weight, View hidden, View cell, void* workspace) {
  const std::int64_t batch = y.shape[0], length = y.shape[1], width = y.shape[2];
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const by_columns = static_cast<T*>(workspace);
    const T* const rows_of_weight = weight.as<T>();
    parallel_for_blocks(width, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        for (std::int64_t n = 0; n < 4 * width; ++n) by_columns[k * 4 * width + n] = rows_of_weight[n * width + k];
      }
    });
    parallel_for_blocks(batch, tile_rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = 0; t < length; ++t) {
        const std::int64_t first = begin * length + t;  // this step of the tile's first sequence
        const T* const earlier = t > 0 ? y.as<T>() + (first - 1) * width : hidden.as<T>() + begin * width;
        multiply(end - begin, gates.as<T>() + first * 4 * width, length * 4 * width, x.as<T>() + first * 4 * width,
                 length * 4 * width, earlier, t > 0 ? length * width : width, by_columns, width, 4 * width);
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t step = row * length + t;
          const T* const before = t > 0 ? cells.as<T>() + (step - 1) * width : cell.as<T>() + row * width;
          cell_step(y.as<T>() + step * width, gates.as<T>() + step * 4 * width, cells.as<T>() + step * width, before,
                    width);
        }
      }
    });
  });
}

std::int64_t lstm_backward_workspace(View) { return 0; }

void lstm_backward(View d_x, View d_hidden, View d_cell, View d_y, View gates, View cells, View weight, View cell,
                   void*) {
  const std::int64_t batch = d_y.shape[0], length = d_y.shape[1], width = d_y.shape[2];
  fill(d_hidden, 0);
  fill(d_cell, 0);
  if (d_y.numel() == 0) return;
  dispatch_floating(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for_blocks(batch, tile_rows, [&](std::int64_t begin, std::int64_t end) {
      T* const d_h = d_hidden.as<T>() + begin * width;  // of the current step
      for (std::int64_t t = length; t-- > 0;) {
        const std::int64_t first = begin * length + t;
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t step = row * length + t;
          T* const own = d_hidden.as<T>() + row * width;
          const T* const from_above = d_y.as<T>() + step * width;
          for (std::int64_t j = 0; j < width; ++j) own[j] += from_above[j];
          const T* const before = t > 0 ? cells.as<T>() + (step - 1) * width : cell.as<T>() + row * width;
          cell_step_backward(d_x.as<T>() + step * 4 * width, d_cell.as<T>() + row * width, own,
                             gates.as<T>() + step * 4 * width, cells.as<T>() + step * width, before, width);
          std::fill_n(own, width, T{0});
        }
        multiply(end - begin, d_h, width, d_h, width, d_x.as<T>() + first * 4 * width, length * 4 * width,
                 weight.as<T>(), 4 * width, width);
      }
    });
  });
}

}  // namespace tally::cpu
