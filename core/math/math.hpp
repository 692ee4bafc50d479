// Exponential, logistic and normal-distribution functions without branches or tables, for float and double, on host and
// device. Inside `#pragma omp simd` loops they are vectorised, unlike calls into libm. They also take vectors
// (core/math/vector.hpp), except the normal distribution in double.
//
// Relative error about 1e-7 in float and 1e-15 in double. NaN passes through; infinities and overflow give the limits,
// results below the normal numbers 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/math/vector.hpp"

namespace tally::math {

namespace detail {

template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int mantissa_bits = 23, exponent_bias = 127;
  static constexpr float lowest = -87.5f, highest = 89.0f;  // exp is 0 and infinite there
  // ln 2 as a sum whose first part has so few bits that its products with whole numbers are exact.
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 1.42860677e-6f;
  // pi / 2 likewise.
  static constexpr float half_pi_high = 0x1.92p+0f, half_pi_middle = 0x1.fb4p-12f, half_pi_low = 0x1.4442d2p-24f;
};

template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int mantissa_bits = 52, exponent_bias = 1023;
  static constexpr double lowest = -708.5, highest = 710.0;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 1.9082149292705877e-10;
  static constexpr double half_pi_high = 0x1.921fb544p+0, half_pi_middle = 0x1.0b4611a6p-34,
                          half_pi_low = 0x1.3198a2e037073p-69;
};

// c0 + x (c1 + x (c2 + ...))
template <class T>
TALLY_INLINE Scalar<T> horner(T, double c) {
  return static_cast<Scalar<T>>(c);
}
template <class T, class... Rest>
TALLY_INLINE T horner(T x, double c, Rest... rest) {
  return static_cast<Scalar<T>>(c) + x * horner(x, rest...);
}

// e^x = 2^n (1 + q) with n a whole number, |x - n ln 2| <= ln(2)/2 and q = e^(x - n ln 2) - 1 by its power series.
// half_scale is 2^(n-1), as 2^n would overflow for the largest results; it is 0 where those are below the normal
// numbers.
template <class T>
struct ReducedExp {
  T half_scale, q;
};

template <class T>
TALLY_INLINE ReducedExp<T> reduce_exp(T x) {
  using S = Scalar<T>;
  using F = Format<S>;
  // Numbers near 1.5 * 2^mantissa_bits are spaced by 1. Adding it rounds x / ln 2 to n, and leaves n in the lowest
  // bits; with the bias added, these are the exponent bits of 2^(n-1).
  constexpr S rounder = S{1.5} * static_cast<S>(typename F::Bits{1} << F::mantissa_bits) + S{F::exponent_bias - 1};
  if constexpr (std::is_same_v<T, S>) {  // the form that compilers vectorise best in a loop
    x = x < F::lowest ? F::lowest : x;
    x = x > F::highest ? F::highest : x;
  } else {
    x = choose(x < F::lowest, splat<T>(F::lowest), x);
    x = choose(x > F::highest, splat<T>(F::highest), x);
  }
  const T shifted = x * static_cast<S>(1.4426950408889634) + rounder;
  const T n = shifted - rounder;
  const T r = (x - n * F::ln2_high) - n * F::ln2_low;
  T h;  // (e^r - 1 - r) / r^2
  if constexpr (sizeof(S) == sizeof(float)) {
    h = horner(r, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040);
  } else {
    h = horner(r, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800);
  }
  using Bits = BitsOf<T>;
  return {std::bit_cast<T>(std::bit_cast<Bits>(shifted) << F::mantissa_bits), r + r * r * h};
}

// e^x - 1 for x <= 0.
template <class T>
TALLY_INLINE T expm1_nonpositive(T x) {
  using S = Scalar<T>;
  const ReducedExp<T> reduced = reduce_exp(x);
  const T scale = S{2} * reduced.half_scale;
  return scale * reduced.q + (scale - S{1});
}

// sin and cos of x = n pi/2 + r, n a whole number and |r| <= pi/4, by the power series of r; quarter: n in its lowest
// bits.
template <class T>
struct Turned {
  T sine, cosine;
  BitsOf<T> quarter;
};

// x - r has an error of 1e-7 (1e-16) up to |x| of about 10^4 (10^9). Beyond that the error has the order of the
// rounding of x. Beyond 2^22 (2^51) numbers are farther apart than half a turn, and r is arbitrary.
template <class T>
TALLY_INLINE Turned<T> turned(T x) {
  using S = Scalar<T>;
  using F = Format<S>;
  constexpr S rounder = S{1.5} * static_cast<S>(typename F::Bits{1} << F::mantissa_bits);
  const T shifted = x * static_cast<S>(0.63661977236758134) + rounder;
  const T n = shifted - rounder;
  T r = ((x - n * F::half_pi_high) - n * F::half_pi_middle) - n * F::half_pi_low;
  r = choose(r < S{-1}, splat<T>(S{-1}), r);
  r = choose(r > S{1}, splat<T>(S{1}), r);
  const T z = r * r;
  T s, c;  // (sin(r) - r) / r^3, (cos(r) - 1 + z/2) / z^2
  if constexpr (sizeof(S) == sizeof(float)) {
    s = horner(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880);
    c = horner(z, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800);
  } else {
    s = horner(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
               -1.0 / 1307674368000, 1.0 / 355687428096000);
    c = horner(z, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
               1.0 / 20922789888000, -1.0 / 6402373705728000);
  }
  return {r + r * z * s, (S{1} - S{0.5} * z) + z * z * c, std::bit_cast<BitsOf<T>>(shifted)};
}

// x with its sign turned where bit 1 of `quarter` is set.
template <class T>
TALLY_INLINE T with_sign(T x, const BitsOf<T>& quarter) {
  using Word = typename Format<Scalar<T>>::Bits;
  constexpr int to_sign = static_cast<int>(8 * sizeof(Word)) - 2;
  return std::bit_cast<T>(std::bit_cast<BitsOf<T>>(x) ^ ((quarter & Word{2}) << to_sign));
}

// log(1 + u) for 0 <= u <= 1: 2 artanh(s), s = u / (2 + u) <= 1/3, by its power series.
template <class T>
TALLY_INLINE T log1p_unit(T u) {
  using S = Scalar<T>;
  const T s = u / (S{2} + u);
  const T z = s * s;
  T h;  // (artanh(s) / s - 1) / z
  if constexpr (sizeof(S) == sizeof(float)) {
    h = horner(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15);
  } else {
    h = horner(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21,
               1.0 / 23, 1.0 / 25, 1.0 / 27, 1.0 / 29, 1.0 / 31, 1.0 / 33);
  }
  return S{2} * (s + s * z * h);
}

}  // namespace detail

template <class T>
TALLY_INLINE T abs(T x) {
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return std::abs(x);
  } else {
    return choose(x < Scalar<T>{0}, -x, x);
  }
}

template <class T>
TALLY_INLINE T exp(T x) {
  const detail::ReducedExp<T> reduced = detail::reduce_exp(x);
  return (Scalar<T>{2} + Scalar<T>{2} * reduced.q) * reduced.half_scale;
}

// The natural logarithm: -infinity for 0, NaN below. x = 2^e m with m from sqrt(1/2) to sqrt(2), and log m = 2
// artanh(s), |s| = |m - 1| / (m + 1) < 0.172, by its power series.
template <class T>
TALLY_INLINE T log(T x) {
  using S = Scalar<T>;
  using F = detail::Format<S>;
  using Bits = BitsOf<T>;
  using Word = typename F::Bits;
  constexpr S least = std::numeric_limits<S>::min(), infinity = std::numeric_limits<S>::infinity();
  constexpr int raised_by = F::mantissa_bits + 1;  // exponent of the factor that makes subnormal numbers normal
  constexpr Word one = std::bit_cast<Word>(S{1}), half_root = std::bit_cast<Word>(static_cast<S>(0.70710678118654752));
  constexpr S magic = static_cast<S>(Word{1} << F::mantissa_bits);  // adding it leaves whole numbers in the last bits

  const T normal = choose(x < least, x * static_cast<S>(Word{1} << raised_by), x);
  const Bits bits = std::bit_cast<Bits>(normal);
  const Bits exponent = (bits + (one - half_root)) >> F::mantissa_bits;  // e and the bias
  const T m = std::bit_cast<T>(bits - (exponent << F::mantissa_bits) + one);
  const T biased = std::bit_cast<T>(exponent | std::bit_cast<Word>(magic)) - magic;
  const T e = biased - choose(x < least, splat<T>(F::exponent_bias + raised_by), splat<T>(F::exponent_bias));
  const T s = (m - S{1}) / (m + S{1});
  const T z = s * s;
  T h;  // (artanh(s) / s - 1) / z
  if constexpr (sizeof(S) == sizeof(float)) {
    h = detail::horner(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11);
  } else {
    h = detail::horner(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19,
                       1.0 / 21, 1.0 / 23);
  }
  const T y = e * F::ln2_high + (S{2} * (s + s * z * h) + e * F::ln2_low);
  const T at_end = choose(x == S{0}, splat<T>(-infinity), splat<T>(std::numeric_limits<S>::quiet_NaN()));
  return choose(x > S{0}, choose(x < infinity, y, x), at_end);
}

// Infinities give NaN.
template <class T>
TALLY_INLINE T sin(T x) {
  using Word = typename detail::Format<Scalar<T>>::Bits;
  const detail::Turned<T> at = detail::turned(x);
  return detail::with_sign(choose((at.quarter & Word{1}) != Word{0}, at.cosine, at.sine), at.quarter);
}
template <class T>
TALLY_INLINE T cos(T x) {
  using Word = typename detail::Format<Scalar<T>>::Bits;
  const detail::Turned<T> at = detail::turned(x);
  return detail::with_sign(choose((at.quarter & Word{1}) != Word{0}, at.sine, at.cosine), at.quarter + Word{1});
}

template <class T>
TALLY_INLINE T sqrt(T x) {
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return std::sqrt(x);
  } else {
    for (std::size_t l = 0; l < sizeof(T) / sizeof(Scalar<T>); ++l) x[l] = std::sqrt(x[l]);
    return x;
  }
}

// 1 / (1 + e^-x)
template <class T>
TALLY_INLINE T sigmoid(T x) {
  return Scalar<T>{1} / (Scalar<T>{1} + exp(-x));
}

// log(1 + e^x) without overflow
template <class T>
TALLY_INLINE T softplus(T x) {
  return choose(x > Scalar<T>{0}, x, splat<T>(0)) + detail::log1p_unit(exp(-abs(x)));
}

template <class T>
TALLY_INLINE T tanh(T x) {
  const T e = detail::expm1_nonpositive(Scalar<T>{-2} * abs(x));
  const T size = e / (Scalar<T>{2} + e);
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return std::copysign(size, x);
  } else {
    return choose(x < Scalar<T>{0}, size, -size);
  }
}

// phi(x) = e^(-x^2/2) / sqrt(2 pi)
template <class T>
TALLY_INLINE T normal_density(T x) {
  return exp(Scalar<T>{-0.5} * x * x) * static_cast<Scalar<T>>(0.3989422804014327);
}

// Phi(x) = (1 + erf(x / sqrt(2))) / 2, with a small relative error in the lower tail. In float 1 - Phi(a) = e^(-a^2/2)
// R(a) with R a polynomial in t = 1 / (1 + 0.36 a), which maps a = 0..infinity to 1..0. R is fitted at Chebyshev nodes
// of t with relative error 1.6e-8. The square in the exponent is rounded: the relative error grows as a^2/2 times the
// rounding error of one operation.
template <class T>
TALLY_INLINE T normal_cdf(T x) {
  static_assert(std::is_same_v<Scalar<T>, float>);
  const T a = abs(x);
  const T t = 1.0f / (1.0f + 0.36f * a);
  const T r =
      t * detail::horner(t, 0.1436192227, 0.1436187751, 0.1250262385, 0.08740306572, 0.04295236029, -0.02868313539,
                         0.05020615759, -0.2130125762, 0.2501610246, -0.1253743849, 0.02408325786);
  const T tail = exp(-0.5f * a * a) * r;
  if constexpr (std::is_same_v<T, float>) {
    return x < 0.0f ? tail : 1.0f - tail;
  } else {
    return choose(x < 0.0f, tail, 1.0f - tail);
  }
}
TALLY_INLINE double normal_cdf(double x) { return 0.5 * std::erfc(x * -0.7071067811865476); }

}  // namespace tally::math
