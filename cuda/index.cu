// Rows of a table by index, and the adjoint. A thread computes one element of the result. In the adjoint that is one
// column of one table row, for a part of the ids, which the thread reads in order, so that no two threads add to one
// number. The parts are added in order afterwards. That suits the small tables of symbols that are trained here: each
// thread reads all ids of its part, including ids of other rows.
#include <algorithm>
#include <limits>

#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct TakeRow {
  T* y;
  const T* table;
  const std::int32_t* ids;
  std::int64_t width, entries, table_step, column_step;
  __device__ void operator()(std::int64_t n) const {
    const std::int64_t row = n / width, j = n % width, id = ids[row];
    const bool known = id >= 0 && id < entries;
    y[n] = known ? table[id * table_step + j * column_step] : std::numeric_limits<T>::quiet_NaN();
  }
};

template <class T>
struct AddRows {
  double* partial;  // [parts][elements of the table]
  const T* d_y;
  const std::int32_t* ids;
  std::int64_t count, elements, width, d_y_step, column_step, part_ids;
  __device__ void operator()(std::int64_t thread) const {
    const std::int64_t part = thread / elements, element = thread % elements, first = part * part_ids;
    const std::int64_t v = element / width, j = element % width;
    const std::int64_t end = first + part_ids < count ? first + part_ids : count;
    double sum = 0;
    for (std::int64_t n = first; n < end; ++n) {
      if (ids[n] == v) sum += static_cast<double>(d_y[n * d_y_step + j * column_step]);
    }
    partial[thread] = sum;
  }
};

}  // namespace

void embedding(View y, View table, View ids) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), TakeRow<T>{y.as<T>(), table.as<T>(), ids.as<std::int32_t>(), y.shape[1], table.shape[0],
                                         table.strides[0], row_step(table)});
  });
}

// Enough parts to give the device enough threads, each with enough ids to be worth a thread.
static std::int64_t parts_of_ids(std::int64_t elements, std::int64_t count) {
  constexpr std::int64_t enough = 1 << 18, least_ids = 64;
  return elements == 0 ? 0 : std::min((count + least_ids - 1) / least_ids, (enough + elements - 1) / elements);
}

std::int64_t embedding_backward_workspace(View d_table, View ids) {
  const std::int64_t elements = d_table.numel();
  return parts_of_ids(elements, ids.numel()) * elements * static_cast<std::int64_t>(sizeof(double));
}

void embedding_backward(View d_table, View d_y, View ids, void* workspace) {
  const std::int64_t elements = d_table.numel(), count = ids.numel();
  if (elements == 0) return;
  const std::int64_t parts = parts_of_ids(elements, count);
  const std::int64_t part_ids = parts == 0 ? 0 : (count + parts - 1) / parts;
  auto* const partial = static_cast<double*>(workspace);
  dispatch_floating(d_table.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(parts * elements, AddRows<T>{partial, d_y.as<T>(), ids.as<std::int32_t>(), count, elements,
                                                d_table.shape[1], d_y.strides[0], row_step(d_y), part_ids});
    for_each_index(elements, CombineParts<Sum, T>{d_table.as<T>(), partial, elements, parts});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
