// The scalars that one update of a parameter reads, in the type of the parameters. The host computes them in double
// (differences from 1 before rounding), so that all devices use the same bits. The kernels read them from device memory
// as a row of `count` numbers. `scale` comes first, because clipping rewrites it there.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/math/random.hpp"

namespace tally {

// m = momentum m + g;  p -= lr m, with g = scale gradient + decay p
template <class T>
struct SgdHyperparameters {
  static constexpr std::int64_t count = 4;
  T scale, decay, momentum, lr;
};

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay, gradient_scale;
  bool decoupled;
  std::int64_t step;  // from 1
};

//   g = gradient scale + decay p;  m = beta1 m + beta1_rest g;  v = beta2 v + beta2_rest g^2
//   p = shrink p - step_size m / (sqrt(v v_correction) + eps)
template <class T>
struct AdamHyperparameters {
  static constexpr std::int64_t count = 10;
  T scale, decay, beta1, beta1_rest, beta2, beta2_rest, shrink, step_size, v_correction, eps;
};

inline AdamHyperparameters<double> adam_hyperparameters(const AdamStep& s) {
  const double t = static_cast<double>(s.step);
  return {.scale = s.gradient_scale,
          .decay = s.decoupled ? 0.0 : s.weight_decay,
          .beta1 = s.beta1,
          .beta1_rest = 1.0 - s.beta1,
          .beta2 = s.beta2,
          .beta2_rest = 1.0 - s.beta2,
          .shrink = s.decoupled ? 1.0 - s.lr * s.weight_decay : 1.0,
          .step_size = s.lr / (1.0 - std::pow(s.beta1, t)),
          .v_correction = 1.0 / (1.0 - std::pow(s.beta2, t)),
          .eps = s.eps};
}
// The hyperparameters as one row of their tensor.
inline std::vector<double> row_of(const SgdHyperparameters<double>& f) { return {f.scale, f.decay, f.momentum, f.lr}; }
inline std::vector<double> row_of(const AdamHyperparameters<double>& f) {
  return {f.scale, f.decay, f.beta1, f.beta1_rest, f.beta2, f.beta2_rest, f.shrink, f.step_size, f.v_correction, f.eps};
}

// The factor by which clipping multiplies gradients. squares [n]: sums of squares of each gradient. NaN if their sum or
// the loss is not finite; the update then changes nothing.
template <class T>
TALLY_HOST_DEVICE double clip_scale_of(const double* squares, std::int64_t n, T loss, double clip) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += squares[i];
  // x - x is 0 for finite x and NaN otherwise
  const double poison = (sum - sum) + static_cast<double>(loss - loss);
  if (clip == 0) return 1 + poison;
  const double scale = clip / (std::sqrt(sum) + 1e-6);
  return (scale < 1 ? scale : 1) + poison;
}

}  // namespace tally
