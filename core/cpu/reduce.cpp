// Sum and maximum over any set of axes of x with any strides, the index of the largest element, and the sum of squares.
//
// The terms of one element of y are cut into blocks that depend only on the shape. Blocks are reduced in parallel, in
// double, and their partial results are combined in order. Within a block x is read along its innermost axis: row by
// row in vector lanes if that axis is reduced, else by adding whole rows to a strip of accumulators (the sums of
// columns).
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t strip_width = 512;  // neighbouring elements of y that one tile computes

struct Sum {
  static constexpr double identity = 0.0;
  template <class T>
  TALLY_INLINE static double row(const T* x, std::int64_t n) {
    return lane_sum(n, [&](std::int64_t i) TALLY_INLINED { return x[i]; });
  }
  TALLY_INLINE static double combine(double a, double b) { return a + b; }
};

// NaN wins.
struct Maximum {
  static constexpr double identity = -std::numeric_limits<double>::infinity();
  template <class T>
  TALLY_INLINE static double row(const T* x, std::int64_t n) {
    std::int32_t nan_count = 0;
#pragma omp simd reduction(+ : nan_count)
    for (std::int64_t i = 0; i < n; ++i) nan_count += x[i] != x[i] ? 1 : 0;
    if (nan_count > 0) return std::numeric_limits<double>::quiet_NaN();
    return lane_max<T>(n, [&](std::int64_t i) TALLY_INLINED { return x[i]; });
  }
  TALLY_INLINE static double combine(double a, double b) { return (a > b || a != a) ? a : b; }
};

template <class Op, class T>
TALLY_CLONES double reduce_row(const T* x, std::int64_t n) {
  return Op::row(x, n);
}

template <class Op, class T>
TALLY_CLONES void combine_row(double* accumulator, const T* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) accumulator[i] = Op::combine(accumulator[i], static_cast<double>(x[i]));
}

// x as loops over the kept axes and over the reduced axes.
struct Axes {
  Loop<1> kept, reduced;
  bool rows_reduced;  // the innermost axis of x is reduced
};

Axes split_axes(const View& y, const View& x) {
  View kept = x, reduced = x;
  kept.shape.rank = reduced.shape.rank = 0;
  std::int64_t kept_step = 0, reduced_step = 0;  // of the innermost axis of each kind
  for (int axis = 0; axis < x.shape.rank; ++axis) {
    if (x.shape[axis] == 1) continue;
    const bool stays = y.shape[axis] == x.shape[axis];
    View& group = stays ? kept : reduced;
    group.strides[group.shape.rank] = x.strides[axis];
    group.shape.append(x.shape[axis]);
    (stays ? kept_step : reduced_step) = x.strides[axis];
  }
  const bool has_kept = kept.shape.rank > 0, has_reduced = reduced.shape.rank > 0;
  return {make_loop(kept.shape, kept), make_loop(reduced.shape, reduced),
          !has_kept || (has_reduced && (reduced_step != 0 && (kept_step == 0 || reduced_step < kept_step)))};
}

// Reduces the terms begin..end-1, counted along the reduced axes, for the element of y that begins at x.
template <class Op, class T>
double reduce_along_rows(const Loop<1>& reduced, const T* x, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = reduced.inner_size(), step = reduced.inner_step()[0];
  double result = Op::identity;
  while (begin < end) {
    const std::int64_t column = begin % width;
    const std::int64_t count = std::min(width - column, end - begin);
    const T* const row = x + reduced.row_offsets(begin / width)[0] + column * step;
    if (step == 1) {
      result = Op::combine(result, reduce_row<Op>(row, count));
    } else {
      GatheredRow<T> gathered(row, step);
      for (std::int64_t i = 0; i < count; i += GatheredRow<T>::capacity) {
        const std::int64_t n = std::min(GatheredRow<T>::capacity, count - i);
        result = Op::combine(result, reduce_row<Op>(gathered.at(i, n), n));
      }
    }
    begin += count;
  }
  return result;
}

// The same for n elements of y at once, `step` apart in x.
template <class Op, class T>
void reduce_along_columns(const Loop<1>& reduced, const T* x, std::int64_t step, std::int64_t begin, std::int64_t end,
                          double* result, std::int64_t n) {
  std::fill_n(result, n, Op::identity);
  for (std::int64_t term = begin; term < end; ++term) {
    const T* const row = x + reduced.element_offsets(term)[0];
    combine_row<Op>(result, GatheredRow<T>(row, step).at(0, n), n);
  }
}

// The tiles of a reduction: strips of neighbouring outputs, and blocks of terms.
struct Cut {
  Axes axes;
  std::int64_t outputs = 0, width = 0, terms = 0;
  std::int64_t strip = 0, strips_per_row = 0, strips = 0, block = 0, blocks = 0;
};

Cut cut(const View& y, const View& x) {
  Cut c{.axes = split_axes(y, x), .outputs = y.numel()};
  c.width = c.axes.kept.inner_size();
  c.terms = c.axes.reduced.rows() * c.axes.reduced.inner_size();
  c.strip = std::min({c.width, strip_width, c.axes.rows_reduced ? rows_per_tile(c.terms) : strip_width});
  c.strips_per_row = (c.width + c.strip - 1) / c.strip;
  c.strips = c.axes.kept.rows() * c.strips_per_row;
  c.block = std::max<std::int64_t>(1, 4 * tile_elements / c.strip);
  c.blocks = std::max<std::int64_t>(1, (c.terms + c.block - 1) / c.block);
  return c;
}

// partial [blocks][outputs]; a single block writes straight to y. T: type of x; Y: type of y
template <class Op, class T, class Y = T>
void reduce_with(const View& y, const View& x, double* partial) {
  if (y.numel() == 0) return;
  const Cut c = cut(y, x);
  const Axes& axes = c.axes;
  const auto reduce_tile = [&](std::int64_t strip_index, std::int64_t block_index) {
    const std::int64_t column = strip_index % c.strips_per_row * c.strip;
    const std::int64_t row = strip_index / c.strips_per_row;
    const std::int64_t n = std::min(c.strip, c.width - column);
    // If no axis is reduced, x has no elements and may have no address to count from.
    const std::int64_t step = c.terms == 0 ? 0 : axes.kept.inner_step()[0];
    const T* const first = x.as<T>() + (c.terms == 0 ? 0 : axes.kept.row_offsets(row)[0] + column * step);
    const std::int64_t begin = block_index * c.block, end = std::min(c.terms, begin + c.block);
    double result[strip_width];
    if (axes.rows_reduced) {
      for (std::int64_t i = 0; i < n; ++i)
        result[i] = reduce_along_rows<Op>(axes.reduced, first + i * step, begin, end);
    } else {
      reduce_along_columns<Op>(axes.reduced, first, step, begin, end, result, n);
    }
    const std::int64_t output = row * c.width + column;
    if (c.blocks == 1) {
      for (std::int64_t i = 0; i < n; ++i) y.as<Y>()[output + i] = static_cast<Y>(result[i]);
    } else {
      std::copy_n(result, n, partial + block_index * c.outputs + output);
    }
  };
  const std::int64_t strips_per_tile = rows_per_tile(c.strip * std::min(c.terms, c.block));
  parallel_for_blocks(c.strips * c.blocks, strips_per_tile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) reduce_tile(i / c.blocks, i % c.blocks);
  });

  if (c.blocks == 1) return;
  for (std::int64_t i = 0; i < c.outputs; ++i) {
    double total = Op::identity;
    for (std::int64_t b = 0; b < c.blocks; ++b) total = Op::combine(total, partial[b * c.outputs + i]);
    y.as<Y>()[i] = static_cast<Y>(total);
  }
}

template <class T>
TALLY_CLONES double sum_of_squares(const T* x, std::int64_t n) {
  return lane_sum(n, [&](std::int64_t i) TALLY_INLINED {
    const auto element = static_cast<double>(x[i]);
    return element * element;
  });
}

// Block size of squared_norm.
constexpr std::int64_t square_block = 4 * tile_elements;
std::int64_t square_blocks(const View& x) { return (x.numel() + square_block - 1) / square_block; }

}  // namespace

std::int64_t reduce_workspace(View y, View x) {
  if (y.numel() == 0) return 0;
  const Cut c = cut(y, x);
  return c.blocks == 1 ? 0 : c.blocks * c.outputs * static_cast<std::int64_t>(sizeof(double));
}

void reduce(ReduceOp op, View y, View x, void* workspace) {
  auto* const partial = static_cast<double*>(workspace);
  if (x.dtype == DType::bf16) return reduce_with<Sum, Bfloat16, float>(y, x, partial);
  dispatch_floating(x.dtype, [&](auto type) {
    using T = decltype(type);
    switch (op) {
      case ReduceOp::sum: return reduce_with<Sum, T>(y, x, partial);
      case ReduceOp::maximum: return reduce_with<Maximum, T>(y, x, partial);
    }
  });
}

void argmax(View index, View x) {
  const std::int64_t width = x.shape.back(), step = x.strides[x.shape.rank - 1];
  const auto loop = make_loop(index.shape, index, leading_axes(x));
  dispatch_floating(x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        const T* const row = x.as<T>() + offset[1] + i * loop.inner_step()[1];
        index.as<std::int64_t>()[offset[0] + i * loop.inner_step()[0]] = index_of_largest(row, width, step);
      }
    });
  });
}

std::int64_t squared_norm_workspace(Views x) {
  std::int64_t blocks = 0;
  for (const View& one : x) blocks += square_blocks(one);
  return blocks * static_cast<std::int64_t>(sizeof(double));
}

void squared_norm(Views results, Views x, void* workspace) {
  auto* partial = static_cast<double*>(workspace);
  for_each_tile(x, square_block, [&](std::size_t i, std::int64_t block, std::int64_t begin, std::int64_t end) {
    dispatch_floating(x[i].dtype, [&](auto type) {
      partial[block] = sum_of_squares(x[i].as<decltype(type)>() + begin, end - begin);
    });
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    double total = 0.0;
    for (std::int64_t block = 0; block < square_blocks(x[i]); ++block) total += *partial++;
    *results[i].as<double>() = total;
  }
}

}  // namespace tally::cpu
