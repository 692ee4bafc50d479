// Table look-ups by position, and the adjoints (formulas: core/cpu/position.cpp). They belong to reference attention,
// for reading and for tests: a thread computes one element of the result, from all its terms in order.
#include "core/attention/pair_functions.hpp"
#include "core/device/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct ReadDistance {
  T* y;
  const T* x;
  Loop<1> leading;
  std::int64_t length, width, step;
  bool cap;
  __device__ void operator()(std::int64_t n) const {
    const std::int64_t row = n / length, j = n % length, distance = row % length - j;
    T value = 0;
    if (distance >= 0 && (distance < width || cap)) {
      value = x[leading.element_offsets(row)[0] + (distance < width ? distance : width - 1) * step];
    }
    y[n] = value;
  }
};

// Entry n of row `row` of x. Several rows of d_y share it: one, or a whole square.
template <class T>
struct AddByDistance {
  T* d_x;
  const T* d_y;
  Loop<1> leading;
  std::int64_t length, width, step, rows;
  bool cap;
  __device__ void operator()(std::int64_t element) const {
    const std::int64_t first = element / width * rows, n = element % width;
    double sum = 0;
    for (std::int64_t row = first; row < first + rows; ++row) {
      const std::int64_t i = row % length;
      const T* const row_d_y = d_y + leading.element_offsets(row)[0];
      const std::int64_t last = cap && n == width - 1 ? i : n;  // distances n .. last read this entry
      for (std::int64_t distance = n; distance <= last && distance <= i; ++distance) {
        sum += static_cast<double>(row_d_y[(i - distance) * step]);
      }
    }
    d_x[element] = static_cast<T>(sum);
  }
};

template <class T>
struct Interpolate {
  T* y;
  const T *table, *position;
  std::int64_t width, entries;
  bool causal;
  __device__ void operator()(std::int64_t n) const {
    const std::int64_t row = n / width, j = n % width;
    if (causal && j > row % width) {
      y[n] = 0;
      return;
    }
    const T* const z = table + row * entries;
    const auto place = attention::table_index(position[n], static_cast<T>(entries - 1));
    const T low = z[place.low], rise = place.low + 1 < entries ? z[place.low + 1] - low : T{0};
    y[n] = attention::interpolate(low, rise, place.w);
  }
};

template <class T>
struct InterpolatePositionGradient {
  T* d_position;
  const T *d_y, *table, *position;
  Loop<1> leading;
  std::int64_t width, entries, step;
  bool causal;
  __device__ void operator()(std::int64_t n) const {
    const std::int64_t row = n / width, j = n % width;
    T gradient = 0;
    if (!causal || j <= row % width) {
      const T* const z = table + row * entries;
      const auto place = attention::table_index(position[n], static_cast<T>(entries - 1));
      const T rise = place.low + 1 < entries ? z[place.low + 1] - z[place.low] : T{0};
      gradient = d_y[leading.element_offsets(row)[0] + j * step] * rise;
    }
    d_position[n] = gradient;
  }
};

template <class T>
struct InterpolateTableGradient {
  T* d_table;
  const T *d_y, *position;
  Loop<1> leading;
  std::int64_t width, entries, step;
  bool causal;
  __device__ void operator()(std::int64_t element) const {
    const std::int64_t row = element / entries, entry = element % entries;
    const std::int64_t n = causal ? row % width + 1 : width;
    const T* const row_d_y = d_y + leading.element_offsets(row)[0];
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const auto place = attention::table_index(position[row * width + j], static_cast<T>(entries - 1));
      const double own = static_cast<double>(row_d_y[j * step]), high = static_cast<double>(place.w) * own;
      if (place.low == entry) sum += own - high;
      if ((place.low + 1 < entries ? place.low + 1 : place.low) == entry) sum += high;
    }
    d_table[element] = static_cast<T>(sum);
  }
};

}  // namespace

void read_distance(View y, View x, bool cap) {
  if (y.numel() == 0) return;
  const auto loop = make_loop(leading_axes(y).shape, leading_axes(x));
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(),
                   ReadDistance<T>{y.as<T>(), x.as<T>(), loop, y.shape.back(), x.shape.back(), row_step(x), cap});
  });
}

void read_distance_backward(View d_x, View d_y, bool cap) {
  if (d_y.numel() == 0) return fill(d_x, 0.0);
  if (d_x.numel() == 0) return;
  const View leading = leading_axes(d_y);
  const std::int64_t length = d_y.shape.back(), rows = d_x.shape.back(1) == 1 ? length : 1;
  dispatch_floating(d_x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(d_x.numel(), AddByDistance<T>{d_x.as<T>(), d_y.as<T>(), make_loop(leading.shape, leading), length,
                                                 d_x.shape.back(), row_step(d_y), rows, cap});
  });
}

void interpolate(View y, View table, View position, bool causal) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(y.numel(), Interpolate<T>{y.as<T>(), table.as<T>(), position.as<T>(), position.shape.back(),
                                             table.shape.back(), causal});
  });
}

std::int64_t interpolate_backward_workspace(View) { return 0; }

void interpolate_backward(View d_table, View d_position, View d_y, View table, View position, bool causal, void*) {
  const std::int64_t entries = table.shape.back(), width = position.shape.back();
  if (width == 0) return fill(d_table, 0.0);
  const View leading = leading_axes(d_y);
  const auto loop = make_loop(leading.shape, leading);
  dispatch_floating(d_position.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(d_position.numel(),
                   InterpolatePositionGradient<T>{d_position.as<T>(), d_y.as<T>(), table.as<T>(), position.as<T>(),
                                                  loop, width, entries, row_step(d_y), causal});
    for_each_index(d_table.numel(), InterpolateTableGradient<T>{d_table.as<T>(), d_y.as<T>(), position.as<T>(), loop,
                                                                width, entries, row_step(d_y), causal});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
