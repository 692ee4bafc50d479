// Vectors as numbers: arithmetic, comparisons and selection in all lanes at once. Code written for a number T works for
// float, double and, on the host, vectors of them. Vectors should be as wide as the registers of the target instruction
// set: compilers compare and select wider ones lane by lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/math/inline.hpp"

namespace tally {

namespace detail {

template <class T>
struct NumberOf {
  using Scalar = T;
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
};

#ifndef TALLY_BY_NVCC
// Functions that take or return vectors are always inlined: the calling convention of vector arguments would depend on
// the instruction set.
#pragma GCC diagnostic ignored "-Wpsabi"

template <class T, int bytes>
struct VectorOf;

#define TALLY_VECTOR_OF(T, Unsigned, Count, bytes)             \
  template <>                                                  \
  struct VectorOf<T, bytes> {                                  \
    typedef T Type __attribute__((vector_size(bytes)));        \
    typedef Unsigned Bits __attribute__((vector_size(bytes))); \
    typedef Count Counts __attribute__((vector_size(bytes)));  \
  };                                                           \
  template <>                                                  \
  struct NumberOf<VectorOf<T, bytes>::Type> {                  \
    using Scalar = T;                                          \
    using Bits = VectorOf<T, bytes>::Bits;                     \
  };
#define TALLY_VECTORS_OF(bytes)                              \
  TALLY_VECTOR_OF(float, std::uint32_t, std::int32_t, bytes) \
  TALLY_VECTOR_OF(double, std::uint64_t, std::int64_t, bytes)
TALLY_VECTORS_OF(16)
TALLY_VECTORS_OF(32)
TALLY_VECTORS_OF(64)
#undef TALLY_VECTORS_OF
#undef TALLY_VECTOR_OF
#endif

}  // namespace detail

// The number of one lane; unsigned whole numbers of the same size, lane by lane.
template <class T>
using Scalar = typename detail::NumberOf<T>::Scalar;
template <class T>
using BitsOf = typename detail::NumberOf<T>::Bits;

#ifndef TALLY_BY_NVCC
template <class T, int bytes>
using Vector = typename detail::VectorOf<T, bytes>::Type;
// The results of comparing a Vector, and lane counters.
template <class T, int bytes>
using VectorOfCounts = typename detail::VectorOf<T, bytes>::Counts;

// Load and store at any address.
template <class V>
TALLY_INLINE V load_vector(const Scalar<V>* x) {
  V y;
  __builtin_memcpy(&y, x, sizeof y);
  return y;
}
template <class V>
TALLY_INLINE void store_vector(Scalar<V>* y, const V& x) {
  __builtin_memcpy(y, &x, sizeof x);
}
#endif

// x in all lanes.
template <class T>
TALLY_INLINE T splat(Scalar<T> x) {
  if constexpr (std::is_same_v<T, Scalar<T>>) {
    return x;
  } else {
    return x - T{};  // exact, and leaves only the copies
  }
}

// In each lane a where `condition` holds, else b.
template <class Condition, class T>
TALLY_INLINE T choose(const Condition& condition, const T& a, const T& b) {
  return condition ? a : b;
}

}  // namespace tally
