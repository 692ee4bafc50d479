// Parameter updates in one pass over parameter, gradient and state (formulas: core/cpu/optimizer.cpp,
// core/update_factors.hpp). A thread has an element: 16 bytes are read and 12 written for each in Adam, so the time is
// that of the memory.
#include <cmath>

#include "core/kernels.hpp"
#include "core/update_factors.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct Sgd {
  T *parameter, *m;  // m is null without momentum
  const T* gradient;
  const SgdFactors<T>* factors;
  __device__ void operator()(std::int64_t i) const {
    const SgdFactors<T> f = *factors;
    if (f.scale != f.scale) return;
    const T g = gradient[i] * f.scale + f.decay * parameter[i];
    if (m != nullptr) m[i] = f.momentum * m[i] + g;
    parameter[i] -= f.lr * (m != nullptr ? m[i] : g);
  }
};

template <class T>
struct Adam {
  T *parameter, *m, *v;
  const T* gradient;
  const AdamFactors<T>* factors;
  __device__ void operator()(std::int64_t i) const {
    const AdamFactors<T> f = *factors;
    if (f.scale != f.scale) return;
    const T g = gradient[i] * f.scale + f.decay * parameter[i];
    m[i] = f.beta1 * m[i] + f.beta1_rest * g;
    v[i] = f.beta2 * v[i] + f.beta2_rest * g * g;
    parameter[i] = f.shrink * parameter[i] - f.step_size * m[i] / (std::sqrt(v[i] * f.v_correction) + f.eps);
  }
};

// A few hundred squares at most, read by every thread that writes: there is nothing to share out.
template <class T>
struct ClipScale {
  T* scale;
  const double* squares;
  const T* loss;
  std::int64_t step, count;
  double clip;
  __device__ void operator()(std::int64_t i) const {
    scale[i * step] = static_cast<T>(clip_scale_of(squares, count, *loss, clip));
  }
};

}  // namespace

void sgd_step(View parameter, View momentum_buffer, View gradient, View factors) {
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(parameter.numel(),
                   Sgd<T>{parameter.as<T>(), momentum_buffer.as<T>(), gradient.as<T>(), factors.as<SgdFactors<T>>()});
  });
}

void adam_step(View parameter, View m, View v, View gradient, View factors) {
  dispatch_floating(parameter.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(parameter.numel(),
                   Adam<T>{parameter.as<T>(), m.as<T>(), v.as<T>(), gradient.as<T>(), factors.as<AdamFactors<T>>()});
  });
}

void clip_scale(View scale, View squares, View loss, double clip) {
  dispatch_floating(scale.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_index(scale.numel(), ClipScale<T>{scale.as<T>(), squares.as<double>(), loss.as<T>(), scale.strides[0],
                                               squares.numel(), clip});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
