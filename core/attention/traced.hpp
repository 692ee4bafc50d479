// Numbers that record which inputs they were computed from. The functions of a score modification are evaluated with
// them at compile time, to deduce its traits (core/attention/score_mod.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/attention/dual.hpp"

namespace tally::attention {

struct Traced {
  std::uint32_t reads = 0;        // a bit for each input
  std::uint32_t derivatives = 0;  // inputs that it has a derivative by: all that are not only compared
  bool nonnegative = false;
  bool is_entry = false;  // p.entry itself

  constexpr Traced() = default;
  constexpr Traced(std::uint32_t read, std::uint32_t by, bool not_below_0 = false, bool entry = false)
      : reads(read), derivatives(by), nonnegative(not_below_0), is_entry(entry) {}
  template <detail::Plain C>
  constexpr Traced(C number) : nonnegative(static_cast<double>(number) >= 0) {}
  constexpr Traced(MinusInfinity) {}

  template <class X = void>
  explicit constexpr operator bool() const {
    static_assert(std::is_same_v<X, Traced>,
                  "a score modification chooses by select(condition, a, b), never by if or ?:");
    return false;
  }
};

constexpr Traced joined(const Traced& a, const Traced& b, bool nonnegative) {
  return {a.reads | b.reads, a.derivatives | b.derivatives, nonnegative};
}
constexpr Traced compared(const Traced& a, const Traced& b) { return {a.reads | b.reads, 0}; }

constexpr Traced operator+(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator*(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator/(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced operator-(const Traced& a, const Traced& b) { return joined(a, b, false); }
constexpr Traced operator-(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced operator<(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator<=(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator>(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator>=(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator&&(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator||(const Traced& a, const Traced& b) { return compared(a, b); }
constexpr Traced operator!(const Traced& x) { return x; }
constexpr Traced select(const Traced& truth, const Traced& a, const Traced& b) {
  return {truth.reads | a.reads | b.reads, a.derivatives | b.derivatives, a.nonnegative && b.nonnegative};
}
constexpr Traced min(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative && b.nonnegative); }
constexpr Traced max(const Traced& a, const Traced& b) { return joined(a, b, a.nonnegative || b.nonnegative); }
constexpr Traced relu(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced abs(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced exp(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced sqrt(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced sigmoid(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced softplus(const Traced& x) { return {x.reads, x.derivatives, true}; }
constexpr Traced log(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced sin(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced cos(const Traced& x) { return {x.reads, x.derivatives}; }
constexpr Traced tanh(const Traced& x) { return {x.reads, x.derivatives}; }

// Functions that an author might call, but that dual numbers do not have.
#define TALLY_NO_FUNCTION(name)                                                                                        \
  template <class... More>                                                                                             \
  constexpr Traced name(const Traced& x, const More&...) {                                                             \
    static_assert(sizeof...(More) > 9,                                                                                 \
                  "a score modification has no " #name ": nn/position/contextual.md lists the functions it may call"); \
    return x;                                                                                                          \
  }
TALLY_NO_FUNCTION(pow)
TALLY_NO_FUNCTION(tan)
TALLY_NO_FUNCTION(floor)
TALLY_NO_FUNCTION(ceil)
TALLY_NO_FUNCTION(log1p)
TALLY_NO_FUNCTION(log2)
TALLY_NO_FUNCTION(exp2)
TALLY_NO_FUNCTION(expm1)
#undef TALLY_NO_FUNCTION

}  // namespace tally::attention
