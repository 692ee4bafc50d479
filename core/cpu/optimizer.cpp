// Parameter updates in one pass over parameter, gradient and state; g = gradient * scale.
//   SGD:   g += decay p;  m = momentum m + g (m = g at step 1);  p -= lr m
//   Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019, decoupled):
//     decoupled: p *= 1 - lr decay, else g += decay p
//     m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
#include <cmath>

#include "core/adam_factors.hpp"
#include "core/cpu/strided.hpp"
#include "core/kernels.hpp"

namespace tally::cpu {

namespace {

template <class T>
TALLY_CLONES void adam_tile(T* parameter, T* m, T* v, const T* gradient, const AdamFactors<T>& factors,
                            std::int64_t n) {
  const AdamFactors<T> f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * f.scale + f.decay * parameter[i];
    m[i] = f.beta1 * m[i] + f.beta1_rest * g;
    v[i] = f.beta2 * v[i] + f.beta2_rest * g * g;
    parameter[i] = f.shrink * parameter[i] - f.step_size * m[i] / (std::sqrt(v[i] * f.v_correction) + f.eps);
  }
}

// m is null without momentum.
template <class T>
TALLY_CLONES void sgd_tile(T* parameter, T* m, const T* gradient, T scale, T decay, T momentum, T lr, std::int64_t n) {
  if (m) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      m[i] = momentum * m[i] + (gradient[i] * scale + decay * parameter[i]);
      parameter[i] -= lr * m[i];
    }
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) parameter[i] -= lr * (gradient[i] * scale + decay * parameter[i]);
  }
}

}  // namespace

void sgd_step(View parameter, View momentum_buffer, View gradient, SgdStep settings) {
  if (momentum_buffer && settings.step == 1) fill(momentum_buffer, 0.0);
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for_blocks(parameter.numel(), tile_elements, [&](std::int64_t begin, std::int64_t end) {
      sgd_tile(parameter.as<T>() + begin, momentum_buffer ? momentum_buffer.as<T>() + begin : nullptr,
               gradient.as<T>() + begin, static_cast<T>(settings.gradient_scale), static_cast<T>(settings.weight_decay),
               static_cast<T>(settings.momentum), static_cast<T>(settings.lr), end - begin);
    });
  });
}

void adam_step(View parameter, View m, View v, View gradient, AdamStep settings) {
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    const AdamFactors<T> factors(settings);
    parallel_for_blocks(parameter.numel(), tile_elements, [&](std::int64_t begin, std::int64_t end) {
      adam_tile(parameter.as<T>() + begin, m.as<T>() + begin, v.as<T>() + begin, gradient.as<T>() + begin, factors,
                end - begin);
    });
  });
}

}  // namespace tally::cpu
