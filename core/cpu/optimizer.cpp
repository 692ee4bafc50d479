// Parameter updates in one pass over parameter, gradient and state; g = gradient * scale.
//   SGD:   g += decay p;  m = momentum m + g;  p -= lr m
//   Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019, decoupled):
//     decoupled: p *= 1 - lr decay, else g += decay p
//     m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
#include <cmath>

#include "core/cpu/strided.hpp"
#include "core/device/kernels.hpp"
#include "core/hyperparameters.hpp"

namespace tally::cpu {

namespace {

template <class T>
TALLY_CLONES void adam_tile(T* parameter, T* m, T* v, const T* gradient, const AdamHyperparameters<T>& hyperparameters,
                            std::int64_t n) {
  const AdamHyperparameters<T> f = hyperparameters;
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
TALLY_CLONES void sgd_tile(T* parameter, T* m, const T* gradient, const SgdHyperparameters<T>& hyperparameters,
                           std::int64_t n) {
  const SgdHyperparameters<T> f = hyperparameters;
  if (m) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      m[i] = f.momentum * m[i] + (gradient[i] * f.scale + f.decay * parameter[i]);
      parameter[i] -= f.lr * m[i];
    }
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) parameter[i] -= f.lr * (gradient[i] * f.scale + f.decay * parameter[i]);
  }
}

// Calls f(hyperparameters, tensor, begin, end) for tiles of all tensors, except tensors whose step is skipped.
template <template <class> class Hyperparameters, class F>
void update(Views parameters, Views hyperparameters, F&& f) {
  for_each_tile(parameters, tile_elements, [&](std::size_t tensor, std::int64_t, std::int64_t begin, std::int64_t end) {
    dispatch_floating(parameters[tensor].dtype, [&](auto type) {
      using T = decltype(type);
      const auto own = *hyperparameters[tensor].as<Hyperparameters<T>>();
      if (!std::isnan(own.scale)) f(own, tensor, begin, end);
    });
  });
}

}  // namespace

void sgd_step(Views parameters, Views momentum_buffers, Views gradients, Views hyperparameters) {
  update<SgdHyperparameters>(
      parameters, hyperparameters,
      [&]<class T>(const SgdHyperparameters<T>& own, std::size_t i, std::int64_t begin, std::int64_t end) {
        const View& m = momentum_buffers[i];
        sgd_tile(parameters[i].as<T>() + begin, m ? m.as<T>() + begin : nullptr, gradients[i].as<T>() + begin, own,
                 end - begin);
      });
}

void adam_step(Views parameters, Views m, Views v, Views gradients, Views hyperparameters) {
  update<AdamHyperparameters>(
      parameters, hyperparameters,
      [&]<class T>(const AdamHyperparameters<T>& own, std::size_t i, std::int64_t begin, std::int64_t end) {
        adam_tile(parameters[i].as<T>() + begin, m[i].as<T>() + begin, v[i].as<T>() + begin,
                  gradients[i].as<T>() + begin, own, end - begin);
      });
}

void clip_scale(View scale, View squares, View loss, double clip) {
  dispatch_floating(scale.dtype, [&](auto type) {
    using T = decltype(type);
    const double found = clip_scale_of(squares.as<double>(), squares.numel(), *loss.as<T>(), clip);
    for (std::int64_t i = 0; i < scale.numel(); ++i) scale.as<T>()[i * scale.strides[0]] = static_cast<T>(found);
  });
}

}  // namespace tally::cpu
