// Elementwise kernels: y = op(x), d_x = d_y op'(.), y = a op b, comparisons and selection. One thread per element; the
// functors are shared with the CPU. Every element is read and written once, so memory bandwidth determines the time.
#include "core/device/kernels.hpp"
#include "core/math/functors.hpp"
#include "cuda/strided.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T, class F>
struct Unary {
  T* y;
  const T* x;
  F f;
  __device__ void operator()(const std::array<std::int64_t, 2>& at) const { y[at[0]] = f(x[at[1]]); }
};

// bf16 elements, computed in f32.
template <class F>
struct Activation {
  Bfloat16* y;
  const Bfloat16* x;
  F f;
  __device__ void operator()(const std::array<std::int64_t, 2>& at) const {
    y[at[0]] = static_cast<Bfloat16>(f(static_cast<float>(x[at[1]])));
  }
};

template <class F>
struct ActivationBackward {
  Bfloat16* d_x;
  const Bfloat16 *d_y, *v;
  F f;
  __device__ void operator()(const std::array<std::int64_t, 3>& at) const {
    d_x[at[0]] = static_cast<Bfloat16>(static_cast<float>(d_y[at[1]]) * f.derivative(static_cast<float>(v[at[2]])));
  }
};

template <class T, class V, class F>
struct UnaryBackward {
  T* d_x;
  const T* d_y;
  const V* v;
  F f;
  __device__ void operator()(const std::array<std::int64_t, 3>& at) const {
    d_x[at[0]] = d_y[at[1]] * f.derivative(static_cast<T>(v[at[2]]));
  }
};

template <class Y, class T, class F>
struct Binary {
  Y* y;
  const T *a, *b;
  F f;
  __device__ void operator()(const std::array<std::int64_t, 3>& at) const { y[at[0]] = f(a[at[1]], b[at[2]]); }
};

template <class T>
struct Where {
  T* y;
  const bool* condition;
  const T *a, *b;
  __device__ void operator()(const std::array<std::int64_t, 4>& at) const {
    y[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]];
  }
};

}  // namespace

void unary(UnaryOp op, double parameter, View y, View x) {
  const auto loop = make_loop(y.shape, y, x);
  if (y.dtype == DType::bf16) {
    return functors::visit_activation(op, [&](auto functor) {
      for_each_element(loop, Activation<decltype(functor)>{y.as<Bfloat16>(), x.as<Bfloat16>(), functor});
    });
  }
  dispatch_floating(y.dtype, [&](auto type) {
    using T = decltype(type);
    functors::visit(op, parameter, [&](auto functor) {
      for_each_element(loop, Unary<T, decltype(functor)>{y.as<T>(), x.as<T>(), functor});
    });
  });
}

void unary_backward(UnaryOp op, double parameter, View d_x, View d_y, View value) {
  const View v = unary_is_linear(op) ? d_y : value;  // any readable element serves as the argument
  const auto loop = make_loop(d_x.shape, d_x, d_y, v);
  if (d_x.dtype == DType::bf16) {
    return functors::visit_activation(op, [&](auto functor) {
      using Own = ActivationBackward<decltype(functor)>;
      for_each_element(loop, Own{d_x.as<Bfloat16>(), d_y.as<Bfloat16>(), v.as<Bfloat16>(), functor});
    });
  }
  dispatch_mixed(d_x.dtype, v.dtype, [&](auto type, auto mixed) {
    using T = decltype(type);
    using V = decltype(mixed);
    functors::visit(op, parameter, [&](auto functor) {
      for_each_element(loop, UnaryBackward<T, V, decltype(functor)>{d_x.as<T>(), d_y.as<T>(), v.as<V>(), functor});
    });
  });
}

void binary(BinaryOp op, View y, View a, View b) {
  const auto loop = make_loop(y.shape, y, a, b);
  dispatch_numbers(y.dtype, [&](auto type) {
    using T = decltype(type);
    functors::visit(op, [&](auto functor) {
      for_each_element(loop, Binary<T, T, decltype(functor)>{y.as<T>(), a.as<T>(), b.as<T>(), functor});
    });
  });
}

void compare(CompareOp op, View y, View a, View b) {
  const auto loop = make_loop(y.shape, y, a, b);
  dispatch_numbers(a.dtype, [&](auto type) {
    using T = decltype(type);
    functors::visit(op, [&](auto functor) {
      for_each_element(loop, Binary<bool, T, decltype(functor)>{y.as<bool>(), a.as<T>(), b.as<T>(), functor});
    });
  });
}

void where(View y, View condition, View a, View b) {
  const auto loop = make_loop(y.shape, y, condition, a, b);
  dispatch_all(y.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_element(loop, Where<T>{y.as<T>(), condition.as<bool>(), a.as<T>(), b.as<T>()});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
