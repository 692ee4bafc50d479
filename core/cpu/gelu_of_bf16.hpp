// GELU and its derivative where argument and result are bf16 (core/precision.md): with absolute errors of 4e-7 and
// 1.5e-6 instead of relative ones of 1e-7, in a quarter of the operations of functors::Gelu.
//
// Phi(x) - 1/2 and gelu'(x) - 1/2 are odd. Of |x| they are cubic polynomials between 32 places, whose coefficients
// AVX-512 has in registers and takes by one permutation each.
#pragma once

#include <array>
#include <bit>
#include <cstddef>

#include "core/activations.hpp"

namespace tally::functors {

namespace detail {

inline constexpr std::size_t gelu_places = 32;
inline constexpr double gelu_place = 0.1875;  // from one to the next; beyond the last Phi is 1 - 3e-9

// coefficients[n][place] of t^n, |t| <= 1/2: how far |x| is from the place, in steps between them.
struct PiecewiseCubic {
  alignas(64) std::array<std::array<float, gelu_places>, 4> coefficients;
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

// Of Phi(x) - 1/2 + p(x) phi(x), p: 0 or x. The Taylor series at each place as far as t^5, whose last two terms are
// economised: on |t| <= 1/2, t^4 is nearest to t^2/4 - 1/128, t^5 to 5/16 t^3 - 5/256 t (Chebyshev).
constexpr PiecewiseCubic piecewise_normal_cdf(bool plus_density_times_x) {
  constexpr std::size_t orders = 6, degrees = 8;
  PiecewiseCubic cubic{};
  for (std::size_t place = 0; place < gelu_places; ++place) {
    const double x = gelu_place * static_cast<double>(place);
    std::array<double, degrees> p{};  // the derivative at hand is p(x) phi(x)
    p[0] = plus_density_times_x ? 2 : 1;
    p[2] = plus_density_times_x ? -1 : 0;
    std::array<double, orders> c{normal_cdf_beyond_half(x) + (plus_density_times_x ? x * normal_density_at(x) : 0)};
    double scale = 1;  // place^n / n!
    for (std::size_t order = 1; order < orders; ++order) {
      scale *= gelu_place / static_cast<double>(order);
      double value = 0;
      for (std::size_t n = degrees; n-- > 0;) value = value * x + p[n];
      c[order] = value * normal_density_at(x) * scale;
      std::array<double, degrees> next{};  // (p phi)' = (p' - x p) phi
      for (std::size_t n = 0; n + 1 < degrees; ++n) {
        next[n] += static_cast<double>(n + 1) * p[n + 1];
        next[n + 1] -= p[n];
      }
      p = next;
    }
    const std::array<double, 4> economised{c[0] - c[4] / 128, c[1] - c[5] * 5 / 256, c[2] + c[4] / 4,
                                           c[3] + c[5] * 5 / 16};
    for (std::size_t n = 0; n < economised.size(); ++n) {
      cubic.coefficients[n][place] = static_cast<float>(economised[n]);
    }
  }
  // What is farther away is taken to be at the last place, where both have reached their limit.
  for (auto& coefficient : cubic.coefficients) coefficient.back() = 0;
  cubic.coefficients[0].back() = 0.5F;
  return cubic;
}

inline constexpr PiecewiseCubic gelu_weight = piecewise_normal_cdf(false), gelu_derivative = piecewise_normal_cdf(true);

// table[the lowest 5 bits of each lane of at]
template <class T>
TALLY_INLINE T look_up(const std::array<float, gelu_places>& table, const BitsOf<T>& at) {
  if constexpr (std::is_same_v<T, float>) {
    return table[at % gelu_places];
  } else {
#if defined(__GNUC__) && !defined(__clang__)
    if constexpr (sizeof(T) == gelu_places / 2 * sizeof(float)) {
      return __builtin_shuffle(load_vector<T>(table.data()), load_vector<T>(table.data() + gelu_places / 2), at);
    }
#endif
    T y;
    for (std::size_t l = 0; l < sizeof(T) / sizeof(float); ++l) y[l] = table[at[l] % gelu_places];
    return y;
  }
}

// The value at a >= 0, or NaN.
template <class T>
TALLY_INLINE T at_magnitude(const PiecewiseCubic& cubic, T a) {
  // Beside 1.5 * 2^23 numbers are spaced by 1: the sum's lowest bits are the nearest place.
  constexpr float rounder = 12582912.0F, last = static_cast<float>(gelu_place * (gelu_places - 1));
  const T bounded = choose(a > last, splat<T>(last), a);
  const T shifted = bounded * static_cast<float>(1 / gelu_place) + rounder;
  const T t = bounded * static_cast<float>(1 / gelu_place) - (shifted - rounder);
  const BitsOf<T> place = std::bit_cast<BitsOf<T>>(shifted);
  const auto c = [&](std::size_t n) TALLY_INLINED { return look_up<T>(cubic.coefficients[n], place); };
  return c(0) + t * (c(1) + t * (c(2) + t * c(3)));
}

}  // namespace detail

struct GeluOfBf16 {
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

// As visit_activation, where argument and result are bf16.
template <class F>
[[gnu::always_inline]] inline void visit_activation_of_bf16(UnaryOp op, F&& f) {
  return op == UnaryOp::gelu ? f(GeluOfBf16{}) : visit_activation(op, f);
}

}  // namespace tally::functors
