// Parameter updates in one pass over parameter, gradient and state of all parameters (formulas: core/cpu/optimizer.cpp,
// core/hyperparameters.hpp). Adam reads 16 bytes and writes 12 per element, so memory bandwidth determines the time.
#include <cmath>

#include "core/device/kernels.hpp"
#include "core/hyperparameters.hpp"
#include "cuda/rows.hpp"
#include "cuda/tensor_list.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct Sgd {
  // data: parameter, gradient, hyperparameters, and m, which is null without momentum
  __device__ void operator()(const TensorList<4>& list, int group, std::int64_t first, std::int64_t count) const {
    void* const* const data = list.data[group];
    const SgdHyperparameters<T> f = *static_cast<const SgdHyperparameters<T>*>(data[2]);
    if (f.scale != f.scale) return;
    T* const parameter = static_cast<T*>(data[0]) + first;
    const T* const gradient = static_cast<const T*>(data[1]) + first;
    T* const m = data[3] != nullptr ? static_cast<T*>(data[3]) + first : nullptr;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const T g = gradient[i] * f.scale + f.decay * parameter[i];
      if (m != nullptr) m[i] = f.momentum * m[i] + g;
      parameter[i] -= f.lr * (m != nullptr ? m[i] : g);
    }
  }
};

template <class T>
struct Adam {
  // data: parameter, gradient, hyperparameters, m, v
  __device__ void operator()(const TensorList<5>& list, int group, std::int64_t first, std::int64_t count) const {
    void* const* const data = list.data[group];
    const AdamHyperparameters<T> f = *static_cast<const AdamHyperparameters<T>*>(data[2]);
    if (f.scale != f.scale) return;
    T* const parameter = static_cast<T*>(data[0]) + first;
    const T* const gradient = static_cast<const T*>(data[1]) + first;
    T *const m = static_cast<T*>(data[3]) + first, *const v = static_cast<T*>(data[4]) + first;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const T g = gradient[i] * f.scale + f.decay * parameter[i];
      m[i] = f.beta1 * m[i] + f.beta1_rest * g;
      v[i] = f.beta2 * v[i] + f.beta2_rest * g * g;
      parameter[i] = f.shrink * parameter[i] - f.step_size * m[i] / (std::sqrt(v[i] * f.v_correction) + f.eps);
    }
  }
};

// At most a few hundred squares, which every writing thread reads: too few to distribute.
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

void sgd_step(Views parameters, Views momentum_buffers, Views gradients, Views hyperparameters) {
  if (parameters.empty()) return;
  dispatch_floating(parameters[0].dtype, [&](auto type) {
    for_each_block_of<4>({parameters, gradients, hyperparameters, momentum_buffers}, Sgd<decltype(type)>{});
  });
}

void adam_step(Views parameters, Views m, Views v, Views gradients, Views hyperparameters) {
  if (parameters.empty()) return;
  dispatch_floating(parameters[0].dtype, [&](auto type) {
    for_each_block_of<5>({parameters, gradients, hyperparameters, m, v}, Adam<decltype(type)>{});
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
