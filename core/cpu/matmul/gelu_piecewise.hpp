// GELU and its derivative for bf16 arguments and results (core/precision.md): absolute errors of 4e-7 and 1.5e-6
// instead of relative errors of 1e-7, in a quarter of the operations of functors::Gelu.
//
// Phi(x) - 1/2 and gelu'(x) - 1/2 are odd functions. As functions of |x| they are cubic polynomials in 32 segments.
// AVX-512 holds the coefficients in registers and looks each one up with one permutation.
#pragma once

#include <array>
#include <bit>
#include <cstddef>

#include "core/math/activations.hpp"
#include "core/math/bfloat16.hpp"

namespace tally::functors {

namespace detail {

inline constexpr std::size_t gelu_knots = 32;
inline constexpr double gelu_knot_step = 0.1875;  // beyond the last knot Phi is 1 - 3e-9

// coefficients[n][knot] of t^n, where t in [-1/2, 1/2] is the distance of |x| from the knot in steps.
struct PiecewiseCubic {
  alignas(64) std::array<std::array<float, gelu_knots>, 4> coefficients;
};

// phi(x), and Phi(x) - 1/2 = phi(x) (x + x^3/3 + x^5/(3 5) + ...), all of whose terms are positive.
constexpr double normal_density_at(double x) {
  constexpr int halvings = 8;
  double power = -x * x / 2 / (1 << halvings), term = 1, sum = 0;
  for (int n = 1; n < 20; ++n) {
    sum += term;
    term *= power / n;
  }
  for (int n = 0; n < halvings; ++n) sum *= sum;
  return sum * 0.3989422804014327;
}
constexpr double normal_cdf_beyond_half(double x) {
  double term = x, sum = 0;
  for (int n = 1; n < 100; ++n) {
    sum += term;
    term *= x * x / (2 * n + 1);
  }
  return normal_density_at(x) * sum;
}

// Phi(x) - 1/2, + x phi(x) if so wanted: the cubic polynomials through the four Chebyshev nodes +-a, +-b of each
// segment.
constexpr PiecewiseCubic piecewise_normal_cdf(bool plus_density_times_x) {
  constexpr double a = 0.4619397662556434, b = 0.1913417161825449, difference = a * a - b * b;  // cos(pi/8, 3 pi/8) / 2
  PiecewiseCubic cubic{};
  for (std::size_t knot = 0; knot < gelu_knots; ++knot) {
    const auto value = [&](double t) {
      const double x = gelu_knot_step * (static_cast<double>(knot) + t);
      return normal_cdf_beyond_half(x) + (plus_density_times_x ? x * normal_density_at(x) : 0);
    };
    const auto even = [&](double t) { return (value(t) + value(-t)) / 2; };
    const auto odd = [&](double t) { return (value(t) - value(-t)) / (2 * t); };
    const double square = (even(a) - even(b)) / difference, cube = (odd(a) - odd(b)) / difference;
    const std::array<double, 4> c{even(a) - square * a * a, odd(a) - cube * a * a, square, cube};
    for (std::size_t n = 0; n < c.size(); ++n) cubic.coefficients[n][knot] = static_cast<float>(c[n]);
  }
  // Larger |x| are moved to the last knot, where both functions have reached their limit.
  for (auto& coefficient : cubic.coefficients) coefficient.back() = 0;
  cubic.coefficients[0].back() = 0.5F;
  return cubic;
}

inline constexpr PiecewiseCubic gelu_weight = piecewise_normal_cdf(false), gelu_derivative = piecewise_normal_cdf(true);

// table[the lowest 5 bits of each lane of at]
template <class T>
TALLY_INLINE T look_up(const std::array<float, gelu_knots>& table, const BitsOf<T>& at) {
  if constexpr (std::is_same_v<T, float>) {
    return table[at % gelu_knots];
  } else {
#if defined(__GNUC__) && !defined(__clang__)
    if constexpr (sizeof(T) == gelu_knots / 2 * sizeof(float)) {
      return __builtin_shuffle(load_vector<T>(table.data()), load_vector<T>(table.data() + gelu_knots / 2), at);
    }
#endif
    T y;
    for (std::size_t l = 0; l < sizeof(T) / sizeof(float); ++l) y[l] = table[at[l] % gelu_knots];
    return y;
  }
}

// The value at a >= 0, or NaN.
template <class T>
TALLY_INLINE T at_magnitude(const PiecewiseCubic& cubic, T a) {
  // Floats near 1.5 * 2^23 are spaced by 1, so the lowest bits of the sum are the nearest knot.
  constexpr float rounder = 12582912.0F, last = static_cast<float>(gelu_knot_step * (gelu_knots - 1));
  const T bounded = choose(a > last, splat<T>(last), a);
  const T shifted = bounded * static_cast<float>(1 / gelu_knot_step) + rounder;
  const T t = bounded * static_cast<float>(1 / gelu_knot_step) - (shifted - rounder);
  const BitsOf<T> knot = std::bit_cast<BitsOf<T>>(shifted);
  const auto c = [&](std::size_t n) TALLY_INLINED { return look_up<T>(cubic.coefficients[n], knot); };
  return c(0) + t * (c(1) + t * (c(2) + t * c(3)));
}

}  // namespace detail

struct GeluPiecewise {
  template <class T>
  TALLY_INLINE T operator()(T x) const {
    const T bounded = at_least(x, -40), a = math::abs(bounded);  // infinity times 0 would be NaN
    const T half = choose(x < 0.0F, splat<T>(-0.5F), splat<T>(0.5F));
    return a * (detail::at_magnitude(detail::gelu_weight, a) + half);
  }
  template <class T>
  TALLY_INLINE T derivative(T x) const {
    const T y = detail::at_magnitude(detail::gelu_derivative, math::abs(x));
    return choose(x < 0.0F, 0.5F - y, 0.5F + y);
  }
};

// As visit_activation, for arguments and results of type T.
template <class T, class F>
[[gnu::always_inline]] inline void visit_activation_of(UnaryOp op, F&& f) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (op == UnaryOp::gelu) return f(GeluPiecewise{});
  }
  visit_activation(op, f);
}

}  // namespace tally::functors
