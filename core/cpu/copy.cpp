// Filling, and copying with type conversion; both sides may have any strides.
#include <cstring>

#include "core/cpu/strided.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

template <class To, class From>
TALLY_INLINE To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
TALLY_CLONES void convert_row(To* y, const From* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, Bfloat16>) {
      y[i].bits = detail::bfloat16_bits(x[i]);  // written as bits: g++ does not vectorise stores of whole objects
    } else {
      y[i] = static_cast<To>(x[i]);
    }
  }
}

// The conversions that occur in every training step.
template <class To, class From>
constexpr bool is_frequent = (std::is_same_v<To, float> && std::is_same_v<From, Bfloat16>) ||
                             (std::is_same_v<To, Bfloat16> && std::is_same_v<From, float>);

template <class To, class From>
void copy_row(To* y, std::int64_t step_y, const From* x, std::int64_t step_x, std::int64_t n) {
  if (step_y == 1 && step_x == 1) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(To));
    } else if constexpr (is_frequent<To, From>) {
      convert_row(y, x, n);
    } else {
      for (std::int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * step_y] = convert<To>(x[i * step_x]);
  }
}

// The axis along which x is contiguous, if that is not the innermost axis but y is contiguous along the innermost: a
// transposition. -1 if there is none.
int transposed_axis(const Loop<2>& loop) {
  if (loop.inner_step()[0] != 1 || loop.inner_step()[1] == 1 || loop.inner_step()[1] == 0) return -1;
  for (int axis = 0; axis < loop.rank - 1; ++axis) {
    if (loop.step[static_cast<std::size_t>(axis)][1] == 1) return axis;
  }
  return -1;
}

// Works in squares of 16 x 16: row by row, every element would fetch a cache line of x and use one element of it.
template <class T>
void copy_transposed(const Loop<2>& loop, int axis, T* y, const T* x) {
  constexpr std::int64_t side = 16;
  const auto a = static_cast<std::size_t>(axis);
  const std::int64_t height = loop.size[a], width = loop.inner_size();
  const std::int64_t step_y = loop.step[a][0], step_x = loop.inner_step()[1];
  Loop<2> outer = loop;  // the other axes; the two axes of a square are fixed
  outer.size[a] = 1;
  const std::int64_t strips = (height + side - 1) / side;
  parallel_for(outer.rows() * strips, [&](std::int64_t tile) {
    const auto offset = outer.row_offsets(tile / strips);
    const std::int64_t begin = tile % strips * side, end = std::min(height, begin + side);
    for (std::int64_t column = 0; column < width; column += side) {
      const std::int64_t column_end = std::min(width, column + side);
      for (std::int64_t i = begin; i < end; ++i) {
        T* const row_y = y + offset[0] + i * step_y;
        const T* const column_x = x + offset[1] + i;
        for (std::int64_t j = column; j < column_end; ++j) row_y[j] = column_x[j * step_x];
      }
    }
  });
}

}  // namespace

void fill(View y, double value) {
  dispatch_all(y.dtype, [&](auto type) {
    using T = decltype(type);
    const T element = convert<T>(value);
    const auto loop = make_loop(y.shape, y);
    for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
      T* const row = y.as<T>() + offset[0];
      if (loop.inner_step()[0] == 1) {
        std::fill_n(row, n, element);
      } else {
        for (std::int64_t i = 0; i < n; ++i) row[i * loop.inner_step()[0]] = element;
      }
    });
  });
}

void copy(View y, View x) {
  const auto loop = make_loop(y.shape, y, x);
  dispatch_all(y.dtype, [&](auto type_y) {
    using To = decltype(type_y);
    if (const int axis = transposed_axis(loop); axis >= 0 && x.dtype == y.dtype) {
      return copy_transposed(loop, axis, y.as<To>(), x.as<To>());
    }
    dispatch_all(x.dtype, [&](auto type_x) {
      using From = decltype(type_x);
      for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
        copy_row(y.as<To>() + offset[0], loop.inner_step()[0], x.as<From>() + offset[1], loop.inner_step()[1], n);
      });
    });
  });
}

void round_to_bf16(Views y, Views x) {
  for (std::size_t n = 0; n < x.size(); ++n) copy(y[n], x[n]);
}

}  // namespace tally::cpu
