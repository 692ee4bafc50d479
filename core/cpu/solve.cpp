// Triangular systems (I + L) Y = G, many small ones, solved row by row: Y_i = G_i - sum_{j<i} L_ij Y_j. Powers of L
// would need no order, but grow without bound if rows of L are alike; this does not. The gradients are
//   dG = (I + L)^-T dY, rows from the last on,  dL = -strictly lower(dG Y^T)
// Each thread solves whole systems. The contributions of earlier rows are added to four rows at a time as one matmul;
// the rest is row by row.
#include <omp.h>

#include <algorithm>

#include "core/cpu/attention/tile.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t rows_at_once = 4;

// Scratch for one system: each thread has a part of the workspace.
template <class T>
struct Scratch {
  std::int64_t ld, columns;  // widths of the right-hand side and of L, rounded up to whole vectors
  T *negated, *right, *turned, *product;

  Scratch(std::int64_t rows, std::int64_t width, bool backward, Arena& arena)
      : ld(round_up(width, vector_lanes<T>)),
        columns(round_up(rows, vector_lanes<T>)),
        negated(arena.take<T>(rows * rows)),
        right(arena.take<T>(rows * ld)),
        turned(arena.take<T>(backward ? width * columns : 0)),
        product(arena.take<T>(backward ? rows * columns : 0)) {}
};

template <class T>
void load(T* target, std::int64_t ld, const T* source, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(source + i * width, width, target + i * ld);
    std::fill(target + i * ld + width, target + (i + 1) * ld, T{0});
  }
}
template <class T>
void store(T* target, const T* source, std::int64_t ld, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(source + i * ld, width, target + i * width);
}

// y += negated y, rows in order; y holds the right-hand side on entry.
template <class T>
void substitute(T* y, std::int64_t ld, const T* negated, std::int64_t rows) {
  for (std::int64_t first = 0; first < rows; first += rows_at_once) {
    const std::int64_t end = std::min(first + rows_at_once, rows);
    gemm_microkernel(y + first * ld, ld, negated + first * rows, rows, 1, y, ld, end - first, ld, first, true);
    for (std::int64_t i = first + 1; i < end; ++i) {
      gemm_microkernel(y + i * ld, ld, negated + i * rows + first, rows, 1, y + first * ld, ld, 1, ld, i - first, true);
    }
  }
}
// The same with the transposed matrix, from the last row to the first.
template <class T>
void substitute_back(T* y, std::int64_t ld, const T* negated, std::int64_t rows) {
  for (std::int64_t end = rows; end > 0;) {
    const std::int64_t first = (end - 1) / rows_at_once * rows_at_once;
    gemm_microkernel(y + first * ld, ld, negated + end * rows + first, 1, rows, y + end * ld, ld, end - first, ld,
                     rows - end, true);
    for (std::int64_t i = end - 2; i >= first; --i) {
      gemm_microkernel(y + i * ld, ld, negated + (i + 1) * rows + i, 1, rows, y + (i + 1) * ld, ld, 1, ld, end - i - 1,
                       true);
    }
    end = first;
  }
}

// Calls f(system, scratch) for every system, with scratch of the thread; f is skipped if the workspace is only counted.
// Returns the bytes of the workspace.
template <class T, class F>
std::int64_t for_each_system(const View& y, bool backward, void* workspace, const F& f) {
  const std::int64_t rows = y.shape.back(1), width = y.shape.back();
  Arena arena(workspace);
  if (y.numel() == 0) return 0;
  const Scratch<T> first(rows, width, backward, arena);
  const std::int64_t bytes = arena.bytes();
  if (workspace != nullptr) {
    parallel_for(y.numel() / (rows * width), [&](std::int64_t system) {
      Arena own(static_cast<std::byte*>(workspace) + omp_get_thread_num() * bytes);
      f(system, Scratch<T>(rows, width, backward, own));
    });
  }
  return bytes * thread_count();
}

std::int64_t workspace_for(const View& y, bool backward) {
  std::int64_t bytes = 0;
  dispatch_floating(y.dtype, [&](auto zero) {
    bytes = for_each_system<decltype(zero)>(y, backward, nullptr, [](auto, const auto&) {});
  });
  return bytes;
}

}  // namespace

std::int64_t solve_unit_lower_workspace(View y) { return workspace_for(y, false); }
void solve_unit_lower(View y, View l, View given, void* workspace) {
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = y.shape.back(1), width = y.shape.back();
    for_each_system<T>(y, false, workspace, [&](std::int64_t system, const Scratch<T>& on) {
      const T* const own = l.as<T>() + system * rows * rows;
      std::transform(own, own + rows * rows, on.negated, [](T x) { return -x; });
      load(on.right, on.ld, given.as<T>() + system * rows * width, rows, width);
      substitute(on.right, on.ld, on.negated, rows);
      store(y.as<T>() + system * rows * width, on.right, on.ld, rows, width);
    });
  });
}

std::int64_t solve_unit_lower_backward_workspace(View y) { return workspace_for(y, true); }
void solve_unit_lower_backward(View d_l, View d_given, View d_y, View l, View y, void* workspace) {
  if (y.numel() == 0) fill(d_l, 0);
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = y.shape.back(1), width = y.shape.back();
    for_each_system<T>(y, true, workspace, [&](std::int64_t system, const Scratch<T>& on) {
      const T* const own = l.as<T>() + system * rows * rows;
      std::transform(own, own + rows * rows, on.negated, [](T x) { return -x; });
      load(on.right, on.ld, d_y.as<T>() + system * rows * width, rows, width);
      substitute_back(on.right, on.ld, on.negated, rows);
      store(d_given.as<T>() + system * rows * width, on.right, on.ld, rows, width);

      const T* const own_y = y.as<T>() + system * rows * width;
      for (std::int64_t c = 0; c < width; ++c) {
        T* const column = on.turned + c * on.columns;
        for (std::int64_t i = 0; i < rows; ++i) column[i] = own_y[i * width + c];
        std::fill(column + rows, column + on.columns, T{0});
      }
      // The entries below the diagonal, rounded up to whole vectors.
      constexpr std::int64_t step = vector_lanes<T>;
      for (std::int64_t first = 0; first < rows; first += step) {
        const std::int64_t end = std::min(first + step, rows);
        gemm_microkernel(on.product + first * on.columns, on.columns, on.right + first * on.ld, on.ld, 1, on.turned,
                         on.columns, end - first, round_up(end, step), width, false);
      }
      T* const target = d_l.as<T>() + system * rows * rows;
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < rows; ++j) target[i * rows + j] = j < i ? -on.product[i * on.columns + j] : T{0};
      }
    });
  });
}

}  // namespace tally::cpu
