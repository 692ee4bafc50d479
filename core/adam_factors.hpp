// Settings of a step of Adam or AdamW in the type of the parameters: differences from 1 are formed in double before
// they are rounded. Shared by the kernels of all devices.
//   g = gradient scale + decay p;  m = beta1 m + beta1_rest g;  v = beta2 v + beta2_rest g^2
//   p = shrink p - step_size m / (sqrt(v v_correction) + eps)
#pragma once

#include <cmath>

#include "core/kernels.hpp"

namespace tally {

template <class T>
struct AdamFactors {
  T beta1, beta1_rest, beta2, beta2_rest, scale, shrink, decay, step_size, v_correction, eps;

  explicit AdamFactors(const AdamStep& s)
      : beta1(static_cast<T>(s.beta1)),
        beta1_rest(static_cast<T>(1.0 - s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        beta2_rest(static_cast<T>(1.0 - s.beta2)),
        scale(static_cast<T>(s.gradient_scale)),
        shrink(static_cast<T>(s.decoupled ? 1.0 - s.lr * s.weight_decay : 1.0)),
        decay(static_cast<T>(s.decoupled ? 0.0 : s.weight_decay)),
        step_size(static_cast<T>(s.lr / (1.0 - std::pow(s.beta1, static_cast<double>(s.step))))),
        v_correction(static_cast<T>(1.0 / (1.0 - std::pow(s.beta2, static_cast<double>(s.step))))),
        eps(static_cast<T>(s.eps)) {}
};

}  // namespace tally
