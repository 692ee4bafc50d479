// Numbers that score modifications compute with where operands are bf16: f32 whose sigmoid is made of approximate
// instructions, with an absolute error of 2^-20. Include this before core/attention/score_mod.hpp.
#pragma once

#include "core/math/math.hpp"
#include "cuda/runtime/instructions.hpp"

namespace tally {

struct Approximate {
  float value = 0;
  Approximate() = default;
  TALLY_INLINE Approximate(float x) : value(x) {}
  TALLY_INLINE operator float() const { return value; }
};

template <>
struct detail::NumberOf<Approximate> : detail::NumberOf<float> {};

namespace math {

TALLY_INLINE Approximate sigmoid(Approximate x) {
  constexpr float log2_e = 1.4426950408889634f;
  using namespace TALLY_CUDA_NAMESPACE::detail;
  return reciprocal_approximate(1.0f + exp2_approximate(-log2_e * x.value));
}
#define TALLY_EXACT(name) \
  TALLY_INLINE Approximate name(Approximate x) { return name(x.value); }
TALLY_EXACT(exp)
TALLY_EXACT(log)
TALLY_EXACT(sqrt)
TALLY_EXACT(softplus)
TALLY_EXACT(tanh)
TALLY_EXACT(sin)
TALLY_EXACT(cos)
TALLY_EXACT(abs)
#undef TALLY_EXACT

}  // namespace math
}  // namespace tally
