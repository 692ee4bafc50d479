// One small struct per elementwise operation: the value and the derivative, for float and double, host and device.
// derivative(v) takes the result of the operation if unary_needs_output(op), otherwise the argument.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "core/device/op_kinds.hpp"
#include "core/math/activations.hpp"
#include "core/math/math.hpp"

namespace tally::functors {

struct Negate {
  TALLY_INLINE auto operator()(auto x) const { return -x; }
  TALLY_INLINE auto derivative(auto x) const { return decltype(x){-1}; }
};

struct Absolute {
  TALLY_INLINE auto operator()(auto x) const { return std::abs(x); }
  TALLY_INLINE auto derivative(auto x) const {
    using T = decltype(x);
    return x > T{0} ? T{1} : (x < T{0} ? T{-1} : T{0});
  }
};

struct Square {
  TALLY_INLINE auto operator()(auto x) const { return x * x; }
  TALLY_INLINE auto derivative(auto x) const { return decltype(x){2} * x; }
};

struct Sqrt {
  TALLY_INLINE auto operator()(auto x) const { return std::sqrt(x); }
  TALLY_INLINE auto derivative(auto y) const { return decltype(y){0.5} / y; }
};

struct Reciprocal {
  TALLY_INLINE auto operator()(auto x) const { return decltype(x){1} / x; }
  TALLY_INLINE auto derivative(auto y) const { return -y * y; }
};

struct Exp {
  TALLY_INLINE auto operator()(auto x) const { return math::exp(x); }
  TALLY_INLINE auto derivative(auto y) const { return y; }
};

struct Log {
  TALLY_INLINE auto operator()(auto x) const { return std::log(x); }
  TALLY_INLINE auto derivative(auto x) const { return decltype(x){1} / x; }
};

struct Sin {
  TALLY_INLINE auto operator()(auto x) const { return std::sin(x); }
  TALLY_INLINE auto derivative(auto x) const { return std::cos(x); }
};

struct Cos {
  TALLY_INLINE auto operator()(auto x) const { return std::cos(x); }
  TALLY_INLINE auto derivative(auto x) const { return -std::sin(x); }
};

struct Sigmoid {
  TALLY_INLINE auto operator()(auto x) const { return math::sigmoid(x); }
  TALLY_INLINE auto derivative(auto y) const { return y * (decltype(y){1} - y); }
};

struct Tanh {
  TALLY_INLINE auto operator()(auto x) const { return math::tanh(x); }
  TALLY_INLINE auto derivative(auto y) const { return decltype(y){1} - y * y; }
};

struct Softplus {
  TALLY_INLINE auto operator()(auto x) const { return math::softplus(x); }
  TALLY_INLINE auto derivative(auto x) const { return math::sigmoid(x); }
};

struct AddScalar {
  double c;
  TALLY_INLINE auto operator()(auto x) const { return x + static_cast<decltype(x)>(c); }
  TALLY_INLINE auto derivative(auto x) const { return decltype(x){1}; }
};

struct MultiplyScalar {
  double c;
  TALLY_INLINE auto operator()(auto x) const { return x * static_cast<decltype(x)>(c); }
  TALLY_INLINE auto derivative(auto x) const { return static_cast<decltype(x)>(c); }
};

struct Power {
  double c;
  TALLY_INLINE auto operator()(auto x) const { return std::pow(x, static_cast<decltype(x)>(c)); }
  TALLY_INLINE auto derivative(auto x) const {
    using T = decltype(x);
    return c == 0.0 ? T{0} : static_cast<T>(c) * std::pow(x, static_cast<T>(c - 1.0));
  }
};

// With a slope of at least 0, the result has the sign of the argument.
struct LeakyRelu {
  double slope;
  TALLY_INLINE auto operator()(auto x) const { return x > 0 ? x : x * static_cast<decltype(x)>(slope); }
  TALLY_INLINE auto derivative(auto y) const {
    using T = decltype(y);
    return y > T{0} ? T{1} : static_cast<T>(slope);
  }
};

struct Add {
  TALLY_INLINE auto operator()(auto a, auto b) const { return a + b; }
};

struct Subtract {
  TALLY_INLINE auto operator()(auto a, auto b) const { return a - b; }
};

struct Multiply {
  TALLY_INLINE auto operator()(auto a, auto b) const { return a * b; }
};

// Whole numbers: rounds towards zero; a division that has no result (by 0) gives 0, and the one that overflows wraps.
struct Divide {
  template <class T>
  TALLY_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == T{0}) return T{0};
      if (b == T{-1}) return a == std::numeric_limits<T>::min() ? a : -a;
    }
    return a / b;
  }
};

// NaN wins over numbers in both.
struct Maximum {
  TALLY_INLINE auto operator()(auto a, auto b) const { return (a > b || a != a) ? a : b; }
};

struct Minimum {
  TALLY_INLINE auto operator()(auto a, auto b) const { return (a < b || a != a) ? a : b; }
};

struct Less {
  TALLY_INLINE bool operator()(auto a, auto b) const { return a < b; }
};

struct LessEqual {
  TALLY_INLINE bool operator()(auto a, auto b) const { return a <= b; }
};

struct Equal {
  TALLY_INLINE bool operator()(auto a, auto b) const { return a == b; }
};

// Calls f, on the host, with the functor of op.
template <class F>
[[gnu::always_inline]] inline void visit(UnaryOp op, double parameter, F&& f) {
  switch (op) {
    case UnaryOp::negate: return f(Negate{});
    case UnaryOp::absolute: return f(Absolute{});
    case UnaryOp::square: return f(Square{});
    case UnaryOp::sqrt: return f(Sqrt{});
    case UnaryOp::reciprocal: return f(Reciprocal{});
    case UnaryOp::exp: return f(Exp{});
    case UnaryOp::log: return f(Log{});
    case UnaryOp::sin: return f(Sin{});
    case UnaryOp::cos: return f(Cos{});
    case UnaryOp::sigmoid: return f(Sigmoid{});
    case UnaryOp::tanh: return f(Tanh{});
    case UnaryOp::relu: return f(Relu{});
    case UnaryOp::gelu: return f(Gelu{});
    case UnaryOp::gelu_tanh: return f(GeluTanh{});
    case UnaryOp::silu: return f(Silu{});
    case UnaryOp::softplus: return f(Softplus{});
    case UnaryOp::add_scalar: return f(AddScalar{parameter});
    case UnaryOp::multiply_scalar: return f(MultiplyScalar{parameter});
    case UnaryOp::power: return f(Power{parameter});
    case UnaryOp::leaky_relu: return f(LeakyRelu{parameter});
  }
}

template <class F>
[[gnu::always_inline]] inline void visit(BinaryOp op, F&& f) {
  switch (op) {
    case BinaryOp::add: return f(Add{});
    case BinaryOp::subtract: return f(Subtract{});
    case BinaryOp::multiply: return f(Multiply{});
    case BinaryOp::divide: return f(Divide{});
    case BinaryOp::maximum: return f(Maximum{});
    case BinaryOp::minimum: return f(Minimum{});
  }
}

template <class F>
[[gnu::always_inline]] inline void visit(CompareOp op, F&& f) {
  switch (op) {
    case CompareOp::less: return f(Less{});
    case CompareOp::less_equal: return f(LessEqual{});
    case CompareOp::equal: return f(Equal{});
  }
}

}  // namespace tally::functors
