// Activation functions of a layer as functors (core/math/functors.hpp): f(x) and f.derivative(x or y), for scalars and
// for vectors (core/math/vector.hpp).
#pragma once

#include "core/device/op_kinds.hpp"
#include "core/math/math.hpp"

namespace tally::functors {

// Clamping: beyond these bounds the result has reached its limit in either type, and 0 * infinity would give NaN. The
// scalar branch is the form that compilers vectorise best in a loop.
template <class T>
TALLY_INLINE T at_least(T x, Scalar<T> bound) {
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return x < bound ? bound : x;
  } else {
    return choose(x < bound, splat<T>(bound), x);
  }
}
template <class T>
TALLY_INLINE T clamp_magnitude(T x, Scalar<T> bound) {
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return x < -bound ? -bound : (x > bound ? bound : x);
  } else {
    return choose(x < -bound, splat<T>(-bound), choose(x > bound, splat<T>(bound), x));
  }
}

struct Relu {
  template <class T>
  TALLY_INLINE T operator()(T x) const {
    return at_least(x, 0);
  }
  template <class T>
  TALLY_INLINE T derivative(T y) const {
    using S = Scalar<T>;
    if constexpr (std::is_same_v<T, S>) {
      return y > S{0} ? S{1} : S{0};
    } else {
      return choose(y > S{0}, splat<T>(1), splat<T>(0));
    }
  }
};

struct Gelu {
  template <class T>
  TALLY_INLINE T operator()(T x) const {
    const T bounded = at_least(x, -40);
    return bounded * math::normal_cdf(bounded);
  }
  template <class T>
  TALLY_INLINE T derivative(T x) const {
    const T bounded = clamp_magnitude(x, 40);
    // Takes the absolute value, as normal_cdf does, so both share one exponential.
    return math::normal_cdf(bounded) + bounded * math::normal_density(math::abs(bounded));
  }
};

// The same with Phi(x) approximated by (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr double slope = 1.5957691216057308, cubic = 0.044715;  // 2 sqrt(2/pi)
  template <class T>
  TALLY_INLINE static T weight(T x) {
    using S = Scalar<T>;
    return math::sigmoid(static_cast<S>(slope) * x * (S{1} + static_cast<S>(cubic) * x * x));
  }
  template <class T>
  TALLY_INLINE T operator()(T x) const {
    const T bounded = at_least(x, -40);
    return bounded * weight(bounded);
  }
  template <class T>
  TALLY_INLINE T derivative(T x) const {
    using S = Scalar<T>;
    const T bounded = clamp_magnitude(x, 40);
    const T s = weight(bounded);
    return s +
           bounded * s * (S{1} - s) * static_cast<S>(slope) * (S{1} + static_cast<S>(3 * cubic) * bounded * bounded);
  }
};

struct Silu {
  template <class T>
  TALLY_INLINE T operator()(T x) const {
    const T bounded = at_least(x, -1000);
    return bounded * math::sigmoid(bounded);
  }
  template <class T>
  TALLY_INLINE T derivative(T x) const {
    using S = Scalar<T>;
    const T bounded = clamp_magnitude(x, 1000);
    const T s = math::sigmoid(bounded);
    return s * (S{1} + bounded * (S{1} - s));
  }
};

// Calls f with the activations that an MLP can have; does nothing for other operations.
template <class F>
[[gnu::always_inline]] inline void visit_activation(UnaryOp op, F&& f) {
  switch (op) {
    case UnaryOp::relu: return f(Relu{});
    case UnaryOp::gelu: return f(Gelu{});
    case UnaryOp::gelu_tanh: return f(GeluTanh{});
    case UnaryOp::silu: return f(Silu{});
    default: return;
  }
}

}  // namespace tally::functors
