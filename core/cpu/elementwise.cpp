// Elementwise kernels: y = op(x), d_x = d_y op'(.), y = a op b, comparisons and selection.
//
// Each kernel has one loop over contiguous elements, compiled per instruction set. Operands that are
// broadcast or strided are brought into a small buffer first (GatheredRow), so that no loop is needed per layout.
#include <type_traits>

#include "core/cpu/matmul/gelu_piecewise.hpp"
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"
#include "core/math/functors.hpp"

namespace tally::cpu {

namespace {

// bf16 is computed in f32; of the operations it has the activations only.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, Bfloat16>, float, T>;

template <class T, class F>
[[gnu::always_inline]] inline void visit_op(UnaryOp op, double parameter, F&& f) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    functors::visit_activation_of<T>(op, f);
  } else {
    functors::visit(op, parameter, f);
  }
}

template <class T>
TALLY_CLONES void unary_row(UnaryOp op, double parameter, T* y, const T* x, std::int64_t n) {
  visit_op<T>(op, parameter, [&](auto functor) TALLY_INLINED {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) write(y + i, functor(static_cast<Computed<T>>(x[i])));
  });
}

template <class T, class V>
TALLY_CLONES void unary_backward_row(UnaryOp op, double parameter, T* d_x, const T* d_y, const V* v, std::int64_t n) {
  using C = Computed<T>;
  visit_op<T>(op, parameter, [&](auto functor) TALLY_INLINED {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      write(d_x + i, static_cast<C>(d_y[i]) * functor.derivative(static_cast<C>(v[i])));
    }
  });
}

template <class Y, class T, class Op>
TALLY_CLONES void combine_row(Op op, Y* y, const T* a, const T* b, std::int64_t n) {
  functors::visit(op, [&](auto functor) TALLY_INLINED {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = functor(a[i], b[i]);
  });
}

template <class T>
TALLY_CLONES void where_row(T* y, const bool* condition, const T* a, const T* b, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] ? a[i] : b[i];
}

// Calls row(y, a, b, n) over stretches of the dense y in which all three are contiguous.
template <class Y, class A, class B, class F>
void for_each_stretch(const View& y, const View& a, const View& b, F&& row) {
  const auto loop = make_loop(y.shape, y, a, b);
  for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
    GatheredRow<A> row_a(a.as<A>() + offset[1], loop.inner_step()[1]);
    GatheredRow<B> row_b(b.as<B>() + offset[2], loop.inner_step()[2]);
    Y* const row_y = y.as<Y>() + offset[0];
    if (loop.inner_step()[1] == 1 && loop.inner_step()[2] == 1) return row(row_y, row_a.at(0, n), row_b.at(0, n), n);
    for (std::int64_t i = 0; i < n; i += GatheredRow<A>::capacity) {
      const std::int64_t count = std::min(GatheredRow<A>::capacity, n - i);
      row(row_y + i, row_a.at(i, count), row_b.at(i, count), count);
    }
  });
}

}  // namespace

void unary(UnaryOp op, double parameter, View y, View x) {
  const auto compute = [&](auto type) {
    using T = decltype(type);
    const auto loop = make_loop(y.shape, y, x);
    for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
      T* const row_y = y.as<T>() + offset[0];
      const T* const row_x = x.as<T>() + offset[1];
      if (loop.inner_step()[1] == 1) return unary_row(op, parameter, row_y, row_x, n);
      for (std::int64_t i = 0; i < n; ++i) row_y[i] = row_x[i * loop.inner_step()[1]];
      unary_row(op, parameter, row_y, row_y, n);
    });
  };
  if (y.dtype == DType::bf16) return compute(Bfloat16{});
  dispatch_floating(y.dtype, compute);
}

void unary_backward(UnaryOp op, double parameter, View d_x, View d_y, View value) {
  const View v = unary_is_linear(op) ? d_y : value;  // any readable row serves as the argument
  const auto compute = [&](auto type, auto mixed) {
    using T = decltype(type);
    using V = decltype(mixed);
    for_each_stretch<T, T, V>(d_x, d_y, v, [&](T* row_d_x, const T* row_d_y, const V* row_v, std::int64_t n) {
      unary_backward_row(op, parameter, row_d_x, row_d_y, row_v, n);
    });
  };
  if (d_x.dtype == DType::bf16) return compute(Bfloat16{}, Bfloat16{});
  dispatch_mixed(d_x.dtype, v.dtype, compute);
}

void binary(BinaryOp op, View y, View a, View b) {
  dispatch_numbers(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_stretch<T, T, T>(y, a, b, [&](T* row_y, const T* row_a, const T* row_b, std::int64_t n) {
      combine_row(op, row_y, row_a, row_b, n);
    });
  });
}

void compare(CompareOp op, View y, View a, View b) {
  dispatch_numbers(a.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_stretch<bool, T, T>(y, a, b, [&](bool* row_y, const T* row_a, const T* row_b, std::int64_t n) {
      combine_row(op, row_y, row_a, row_b, n);
    });
  });
}

void where(View y, View condition, View a, View b) {
  dispatch_all(y.dtype, [&](auto type) {
    using T = decltype(type);
    const auto loop = make_loop(y.shape, y, condition, a, b);
    for_each_chunk(loop, [&](const auto& offset, std::int64_t n) {
      const auto& step = loop.inner_step();
      GatheredRow<bool> row_condition(condition.as<bool>() + offset[1], step[1]);
      GatheredRow<T> row_a(a.as<T>() + offset[2], step[2]);
      GatheredRow<T> row_b(b.as<T>() + offset[3], step[3]);
      for (std::int64_t i = 0; i < n; i += GatheredRow<T>::capacity) {
        const std::int64_t count = std::min(GatheredRow<T>::capacity, n - i);
        where_row(y.as<T>() + offset[0] + i, row_condition.at(i, count), row_a.at(i, count), row_b.at(i, count), count);
      }
    });
  });
}

}  // namespace tally::cpu
