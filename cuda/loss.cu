// Cross entropy from logits, row by row (formulas: core/cpu/loss.cpp). One warp per row.
#include <cmath>
#include <limits>

#include "core/device/kernels.hpp"
#include "core/math/math.hpp"
#include "cuda/rows.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

template <class T>
struct LossRow {
  T *loss, *log_sum;
  const T* logits;
  const std::int32_t* targets;
  const bool* mask;
  std::int64_t width, mask_step;

  __device__ void operator()(std::int64_t row, std::int64_t offset, int lane) const {
    const T* const x = logits + offset;
    const T m = row_max<T>(width, lane, [&](std::int64_t j) { return x[j]; });
    const double sum = row_sum(width, lane, [&](std::int64_t j) { return math::exp(x[j] - m); });
    if (lane != 0) return;
    const double total = static_cast<double>(m) + std::log(sum);
    log_sum[row] = static_cast<T>(total);
    const std::int64_t target = targets[row];
    const bool known = target >= 0 && target < width;
    const double own = known ? static_cast<double>(x[target]) : std::numeric_limits<double>::quiet_NaN();
    loss[row] = mask[row * mask_step] ? static_cast<T>(total - own) : T{0};
  }
};

template <class T>
struct LossBackwardRow {
  T* d_logits;
  const T *d_loss, *log_sum, *logits;
  const std::int32_t* targets;
  const bool* mask;
  std::int64_t width, mask_step, d_loss_step;

  __device__ void operator()(std::int64_t row, std::int64_t offset, int lane) const {
    const bool counts = mask[row * mask_step];
    const T factor = counts ? d_loss[row * d_loss_step] : T{0};
    const std::int64_t target = targets[row];
    const auto share = [&](std::int64_t j) { return math::exp(logits[offset + j] - log_sum[row]) * factor; };
    const bool sure = counts && std::abs(share(target)) > std::abs(factor) / 2;
    double others = 0;
    if (sure) others = row_sum(width, lane, [&](std::int64_t j) { return j == target ? T{0} : share(j); });
    // d_logits may be the logits: no lane writes before all of them have read, and the shuffles of a sum do not order
    // memory.
    __syncwarp();
    for (std::int64_t j = lane; j < width; j += warp_lanes) {
      T value = 0;
      if (counts) {
        value = share(j);
        if (j == target) value = sure ? static_cast<T>(-others) : value - factor;
      }
      d_logits[row * width + j] = value;
    }
  }
};

}  // namespace

void cross_entropy(View loss, View log_sum, View logits, View targets, View mask) {
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(logits, LossRow<T>{loss.as<T>(), log_sum.as<T>(), logits.as<T>(), targets.as<std::int32_t>(),
                                    mask.as<bool>(), logits.shape[1], row_step(mask)});
  });
}

void cross_entropy_backward(View d_logits, View d_loss, View log_sum, View logits, View targets, View mask) {
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(logits, LossBackwardRow<T>{d_logits.as<T>(), d_loss.as<T>(), log_sum.as<T>(), logits.as<T>(),
                                            targets.as<std::int32_t>(), mask.as<bool>(), logits.shape[1],
                                            row_step(mask), row_step(d_loss)});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
