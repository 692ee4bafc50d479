// Parameter updates in one pass over parameter, gradient and state (formulas: core/cpu/optimizer.cpp,
// core/adam_factors.hpp). A thread has an element: 16 bytes are read and 12 written for each in Adam, so the time is
// that of the memory.
#include <cmath>

#include "core/adam_factors.hpp"
#include "core/kernels.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct Sgd {
  T *parameter, *m;  // m is null without momentum
  const T* gradient;
  T scale, decay, momentum, lr;
  __device__ void operator()(std::int64_t i) const {
    const T g = gradient[i] * scale + decay * parameter[i];
    if (m != nullptr) m[i] = momentum * m[i] + g;
    parameter[i] -= lr * (m != nullptr ? m[i] : g);
  }
};

template <class T>
struct Adam {
  T *parameter, *m, *v;
  const T* gradient;
  AdamFactors<T> f;
  __device__ void operator()(std::int64_t i) const {
    const T g = gradient[i] * f.scale + f.decay * parameter[i];
    m[i] = f.beta1 * m[i] + f.beta1_rest * g;
    v[i] = f.beta2 * v[i] + f.beta2_rest * g * g;
    parameter[i] = f.shrink * parameter[i] - f.step_size * m[i] / (std::sqrt(v[i] * f.v_correction) + f.eps);
  }
};

}  // namespace

void sgd_step(View parameter, View momentum_buffer, View gradient, SgdStep settings) {
  if (momentum_buffer && settings.step == 1) fill(momentum_buffer, 0.0);
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(
        parameter.numel(),
        Sgd<T>{parameter.as<T>(), momentum_buffer.as<T>(), gradient.as<T>(), static_cast<T>(settings.gradient_scale),
               static_cast<T>(settings.weight_decay), static_cast<T>(settings.momentum), static_cast<T>(settings.lr)});
  });
}

void adam_step(View parameter, View m, View v, View gradient, AdamStep settings) {
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(parameter.numel(),
                   Adam<T>{parameter.as<T>(), m.as<T>(), v.as<T>(), gradient.as<T>(), AdamFactors<T>(settings)});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
