// Rows of a table by index, and the adjoint. A thread computes one element of the result, and every number of the
// adjoint is a sum in the order of the ids.
//
// In the adjoint of a small table, a thread has one column of one table row. It reads all ids of its part, including
// ids of other rows; the parts are added in order afterwards. For a large table, such as a vocabulary, the ids are
// sorted first: a thread for each id counts the ids that come before it. A warp then adds each run of equal ids.
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

// Sorts the ids; equal ids keep their order.
struct SortIds {
  std::int32_t* sorted;  // [count]: places of ids
  const std::int32_t* ids;
  std::int64_t count;
  __device__ void operator()(std::int64_t n) const {
    const std::int32_t id = ids[n];
    std::int64_t before = 0;
    TALLY_UNROLL_BY(8)
    for (std::int64_t m = 0; m < n; ++m) before += ids[m] <= id ? 1 : 0;
    TALLY_UNROLL_BY(8)
    for (std::int64_t m = n + 1; m < count; ++m) before += ids[m] < id ? 1 : 0;
    sorted[before] = static_cast<std::int32_t>(n);
  }
};

template <class T>
struct AddRun {
  T* d_table;
  const T* d_y;
  const std::int32_t *ids, *sorted;
  std::int64_t count, entries, width, d_y_step, column_step;
  __device__ void operator()(std::int64_t thread) const {
    const std::int64_t first = thread / warp_lanes;
    const std::int32_t id = ids[sorted[first]];
    if (id < 0 || id >= entries || (first > 0 && ids[sorted[first - 1]] == id)) return;
    for (std::int64_t j = thread % warp_lanes; j < width; j += warp_lanes) {
      double sum = 0;
      for (std::int64_t n = first; n < count && ids[sorted[n]] == id; ++n) {
        sum += static_cast<double>(d_y[sorted[n] * d_y_step + j * column_step]);
      }
      d_table[id * width + j] = static_cast<T>(sum);
    }
  }
};

constexpr std::int64_t enough_threads = 1 << 18;  // for any GPU
bool is_large(std::int64_t elements) { return elements >= enough_threads; }

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
  constexpr std::int64_t least_ids = 64;
  return elements == 0 ? 0 : std::min((count + least_ids - 1) / least_ids, (enough_threads + elements - 1) / elements);
}

std::int64_t embedding_backward_workspace(View d_table, View ids) {
  const std::int64_t elements = d_table.numel();
  if (is_large(elements)) return ids.numel() * static_cast<std::int64_t>(sizeof(std::int32_t));
  return parts_of_ids(elements, ids.numel()) * elements * static_cast<std::int64_t>(sizeof(double));
}

void embedding_backward(View d_table, View d_y, View ids, void* workspace) {
  const std::int64_t elements = d_table.numel(), count = ids.numel();
  if (elements == 0) return;
  if (is_large(elements)) {
    auto* const sorted = static_cast<std::int32_t*>(workspace);
    const auto* const all_ids = ids.as<std::int32_t>();
    fill(d_table, 0.0);
    for_each_index(count, SortIds{sorted, all_ids, count});
    return dispatch_floating(d_table.dtype, [&](auto type) {
      using T = decltype(type);
      for_each_index(count * warp_lanes, AddRun<T>{d_table.as<T>(), d_y.as<T>(), all_ids, sorted, count,
                                                   d_table.shape[0], d_table.shape[1], d_y.strides[0], row_step(d_y)});
    });
  }
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
