// Rows of a table by number, and the adjoint. A thread has one element of the result: of the adjoint one column of one
// row of the table, which goes through all ids in order, so that no two threads add to one number.
#include "core/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct TakeRow {
  T* y;
  const T* table;
  const std::int32_t* ids;
  std::int64_t width, table_step, column_step;
  __device__ void operator()(std::int64_t n) const {
    const std::int64_t row = n / width, j = n % width;
    y[n] = table[ids[row] * table_step + j * column_step];
  }
};

template <class T>
struct AddRows {
  T* d_table;
  const T* d_y;
  const std::int32_t* ids;
  std::int64_t count, width, d_y_step, column_step;
  __device__ void operator()(std::int64_t element) const {
    const std::int64_t v = element / width, j = element % width;
    double sum = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      if (ids[n] == v) sum += static_cast<double>(d_y[n * d_y_step + j * column_step]);
    }
    d_table[element] = static_cast<T>(sum);
  }
};

}  // namespace

void embedding(View y, View table, View ids) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), TakeRow<T>{y.as<T>(), table.as<T>(), ids.as<std::int32_t>(), y.shape[1], table.strides[0],
                                         row_step(table)});
  });
}

void embedding_backward(View d_table, View d_y, View ids) {
  dispatch_floating(d_table.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(d_table.numel(), AddRows<T>{d_table.as<T>(), d_y.as<T>(), ids.as<std::int32_t>(), ids.numel(),
                                               d_table.shape[1], d_y.strides[0], row_step(d_y)});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
