// Dual numbers: forward-mode differentiation of functions of one pair of query and key. A pair has few inputs. The type
// of a result holds the set of inputs it depends on, so derivatives that are always 0 cost nothing.
//
// R is float, double or, on the CPU, a vector of them (core/math/vector.hpp) with one pair in each lane.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/math/math.hpp"

namespace tally::attention {

template <class R, std::size_t count>
struct Derivatives {
  R by[count];
};
template <class R>
struct Derivatives<R, 0> {};

// `inputs`: bit i stands for the derivative by input i.
template <class R, std::uint32_t inputs = 0>
struct Dual {
  using Number = R;
  static constexpr std::size_t count = static_cast<std::size_t>(std::popcount(inputs));

  R value;
  [[no_unique_address]] Derivatives<R, count> derivatives;  // by the inputs whose bits are set, from the lowest on

  template <int i>
  static constexpr bool has = (inputs >> i & 1) != 0;
  template <int i>
  TALLY_INLINE R& by() {
    return derivatives.by[std::popcount(inputs & ((1u << i) - 1))];
  }
  template <int i>
  TALLY_INLINE const R& by() const {
    return derivatives.by[std::popcount(inputs & ((1u << i) - 1))];
  }
};

// The logit of a masked key, for `select`.
struct MinusInfinity {};
inline constexpr MinusInfinity minus_infinity{};

// The result of a comparison.
template <class R>
struct Truth {
  decltype(std::declval<R>() < std::declval<R>()) holds;
};
// Both sides are evaluated.
template <class R>
TALLY_INLINE Truth<R> operator&&(const Truth<R>& a, const Truth<R>& b) {
  return {static_cast<decltype(a.holds)>(a.holds & b.holds)};
}
template <class R>
TALLY_INLINE Truth<R> operator||(const Truth<R>& a, const Truth<R>& b) {
  return {static_cast<decltype(a.holds)>(a.holds | b.holds)};
}
template <class R>
TALLY_INLINE Truth<R> operator!(const Truth<R>& a) {
  return {!a.holds};
}

namespace detail {

template <class X>
struct DualTraits : std::false_type {};
template <class R, std::uint32_t inputs>
struct DualTraits<Dual<R, inputs>> : std::true_type {};

template <class X>
inline constexpr bool is_dual = DualTraits<std::remove_cvref_t<X>>::value;
template <class X>
concept Plain = std::is_arithmetic_v<X>;
template <class X>
concept Differentiable = is_dual<X>;
// f.operator()<i>() for each input i of the set.
template <std::uint32_t inputs, int i = 0, class F>
TALLY_INLINE void each_input(const F& f) {
  if constexpr (inputs >> i & 1) f.template operator()<i>();
  if constexpr (i < 31 && (inputs >> i) > 1) each_input<inputs, i + 1>(f);
}

// The value with by(i) = f(da) if only a depends on input i, g(db) if only b does, h(da, db) if both do.
template <class R, std::uint32_t A, std::uint32_t B, class F, class G, class H>
TALLY_INLINE Dual<R, A | B> join(const R& value, const Dual<R, A>& a, const Dual<R, B>& b, const F& f, const G& g,
                                 const H& h) {
  Dual<R, A | B> y;
  y.value = value;
  each_input<A | B>([&]<int i>() TALLY_INLINED {
    if constexpr ((A & B) >> i & 1) {
      y.template by<i>() = h(a.template by<i>(), b.template by<i>());
    } else if constexpr (A >> i & 1) {
      y.template by<i>() = f(a.template by<i>());
    } else {
      y.template by<i>() = g(b.template by<i>());
    }
  });
  return y;
}

// The value with the derivatives of x times the slope, which compilers leave out where x has none.
template <class R, std::uint32_t A>
TALLY_INLINE Dual<R, A> chain(const R& value, const R& slope, const Dual<R, A>& x) {
  Dual<R, A> y;
  y.value = value;
  each_input<A>([&]<int i>() TALLY_INLINED { y.template by<i>() = slope * x.template by<i>(); });
  return y;
}

}  // namespace detail

// x as a dual number; plain numbers become constants.
template <class R, class X>
TALLY_INLINE auto as_dual(const X& x) {
  if constexpr (detail::is_dual<X>) {
    return x;
  } else {
    return Dual<R, 0>{splat<R>(static_cast<Scalar<R>>(x)), {}};
  }
}
// x as input i, or as a constant.
template <int i, bool differentiates = true, class R>
TALLY_INLINE auto input(const R& x) {
  Dual<R, differentiates ? 1u << i : 0u> y{x, {}};
  if constexpr (differentiates) y.template by<i>() = splat<R>(1);
  return y;
}

#define TALLY_DUAL_WITH_PLAIN(op)                      \
  template <detail::Differentiable X, detail::Plain C> \
  TALLY_INLINE auto operator op(const X& x, C c) {     \
    return x op as_dual<typename X::Number>(c);        \
  }                                                    \
  template <detail::Plain C, detail::Differentiable X> \
  TALLY_INLINE auto operator op(C c, const X& x) {     \
    return as_dual<typename X::Number>(c) op x;        \
  }

template <class R, std::uint32_t A, std::uint32_t B>
TALLY_INLINE auto operator+(const Dual<R, A>& a, const Dual<R, B>& b) {
  const auto same = [](const R& d) TALLY_INLINED -> R { return d; };
  return detail::join(R(a.value + b.value), a, b, same, same,
                      [](const R& da, const R& db) TALLY_INLINED -> R { return da + db; });
}
template <class R, std::uint32_t A, std::uint32_t B>
TALLY_INLINE auto operator-(const Dual<R, A>& a, const Dual<R, B>& b) {
  return detail::join(
      R(a.value - b.value), a, b, [](const R& da) TALLY_INLINED -> R { return da; },
      [](const R& db) TALLY_INLINED -> R { return -db; },
      [](const R& da, const R& db) TALLY_INLINED -> R { return da - db; });
}
template <class R, std::uint32_t A>
TALLY_INLINE auto operator-(const Dual<R, A>& x) {
  return Dual<R, 0>{splat<R>(0), {}} - x;
}
template <class R, std::uint32_t A, std::uint32_t B>
TALLY_INLINE auto operator*(const Dual<R, A>& a, const Dual<R, B>& b) {
  return detail::join(
      R(a.value * b.value), a, b, [&](const R& da) TALLY_INLINED -> R { return da * b.value; },
      [&](const R& db) TALLY_INLINED -> R { return a.value * db; },
      [&](const R& da, const R& db) TALLY_INLINED -> R { return da * b.value + a.value * db; });
}
template <class R, std::uint32_t A, std::uint32_t B>
TALLY_INLINE auto operator/(const Dual<R, A>& a, const Dual<R, B>& b) {
  const R quotient = a.value / b.value;
  return detail::join(
      quotient, a, b, [&](const R& da) TALLY_INLINED -> R { return da / b.value; },
      [&](const R& db) TALLY_INLINED -> R { return -quotient * db / b.value; },
      [&](const R& da, const R& db) TALLY_INLINED -> R { return (da - quotient * db) / b.value; });
}
TALLY_DUAL_WITH_PLAIN(+)
TALLY_DUAL_WITH_PLAIN(-)
TALLY_DUAL_WITH_PLAIN(*)
TALLY_DUAL_WITH_PLAIN(/)

#define TALLY_DUAL_COMPARISON(op)                                               \
  template <class R, std::uint32_t A, std::uint32_t B>                          \
  TALLY_INLINE Truth<R> operator op(const Dual<R, A>& a, const Dual<R, B>& b) { \
    return {a.value op b.value};                                                \
  }                                                                             \
  TALLY_DUAL_WITH_PLAIN(op)
TALLY_DUAL_COMPARISON(<)
TALLY_DUAL_COMPARISON(<=)
TALLY_DUAL_COMPARISON(>)
TALLY_DUAL_COMPARISON(>=)
#undef TALLY_DUAL_COMPARISON
#undef TALLY_DUAL_WITH_PLAIN

// x if the truth holds, else y, with the derivatives of the choice.
template <class R, class X, class Y>
TALLY_INLINE auto select(const Truth<R>& truth, const X& x, const Y& y) {
  if constexpr (std::is_same_v<Y, MinusInfinity>) {
    return select(truth, x, Dual<R, 0>{splat<R>(-std::numeric_limits<Scalar<R>>::infinity()), {}});
  } else if constexpr (std::is_same_v<X, MinusInfinity>) {
    return select(truth, Dual<R, 0>{splat<R>(-std::numeric_limits<Scalar<R>>::infinity()), {}}, y);
  } else {
    const auto a = as_dual<R>(x);
    const auto b = as_dual<R>(y);
    const R zero = splat<R>(0);
    return detail::join(
        choose(truth.holds, a.value, b.value), a, b,
        [&](const R& da) TALLY_INLINED -> R { return choose(truth.holds, da, zero); },
        [&](const R& db) TALLY_INLINED -> R { return choose(truth.holds, zero, db); },
        [&](const R& da, const R& db) TALLY_INLINED -> R { return choose(truth.holds, da, db); });
  }
}

template <class R, std::uint32_t A>
TALLY_INLINE auto exp(const Dual<R, A>& x) {
  const R y = math::exp(x.value);
  return detail::chain(y, y, x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto log(const Dual<R, A>& x) {
  return detail::chain(math::log(x.value), R(Scalar<R>{1} / x.value), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto sqrt(const Dual<R, A>& x) {
  const R y = math::sqrt(x.value);
  return detail::chain(y, R(Scalar<R>{0.5} / y), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto sigmoid(const Dual<R, A>& x) {
  const R y = math::sigmoid(x.value);
  return detail::chain(y, R(y * (Scalar<R>{1} - y)), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto softplus(const Dual<R, A>& x) {
  return detail::chain(math::softplus(x.value), math::sigmoid(x.value), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto tanh(const Dual<R, A>& x) {
  const R y = math::tanh(x.value);
  return detail::chain(y, R(Scalar<R>{1} - y * y), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto sin(const Dual<R, A>& x) {
  return detail::chain(math::sin(x.value), math::cos(x.value), x);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto cos(const Dual<R, A>& x) {
  return detail::chain(math::cos(x.value), R(-math::sin(x.value)), x);
}
// At ties min and max take the derivative of the first argument. At 0 the derivatives of relu and abs are 0.
template <class R, std::uint32_t A>
TALLY_INLINE auto relu(const Dual<R, A>& x) {
  return select(x > 0, x, 0);
}
template <class R, std::uint32_t A>
TALLY_INLINE auto abs(const Dual<R, A>& x) {
  return select(x > 0, x, select(x < 0, -x, x * 0));
}
template <class R, std::uint32_t A, class Y>
TALLY_INLINE auto min(const Dual<R, A>& x, const Y& y) {
  return select(x <= y, x, y);
}
template <class R, std::uint32_t A, class Y>
TALLY_INLINE auto max(const Dual<R, A>& x, const Y& y) {
  return select(x >= y, x, y);
}
template <detail::Plain C, detail::Differentiable X>
TALLY_INLINE auto min(C c, const X& x) {
  return select(c <= x, c, x);
}
template <detail::Plain C, detail::Differentiable X>
TALLY_INLINE auto max(C c, const X& x) {
  return select(c >= x, c, x);
}

}  // namespace tally::attention
