// Cross entropy from logits, row by row (formulas: core/cpu/loss.cpp). Forward reads each logit once: a thread holds
// the largest logit m that it has met, and its sum of e^(l - m).
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
  std::int64_t* largest;  // or null
  const T* logits;
  const std::int32_t* targets;
  const bool* mask;
  std::int64_t width, mask_step;

  template <class Threads>
  __device__ void operator()(std::int64_t row, std::int64_t offset, Threads threads) const {
    const T* const x = logits + offset;
    T m = std::numeric_limits<T>::lowest();
    double sum = 0;
    Largest<T> first_largest;
    for (std::int64_t j = threads.index; j < width; j += Threads::count) {
      const T logit = x[j];
      first_largest.add(logit, j);
      if (logit > m) {
        sum *= static_cast<double>(math::exp(m - logit));
        m = logit;
      }
      sum += static_cast<double>(math::exp(logit - m));
    }
    const T row_m = threads.template combine<Larger>(m);
    sum = threads.template combine<Sum>(sum * static_cast<double>(math::exp(m - row_m)));
    const std::int64_t best = largest == nullptr ? 0 : first_largest.index_of_row(threads);
    if (threads.index != 0) return;
    if (largest != nullptr) largest[row] = best;
    const double total = static_cast<double>(row_m) + std::log(sum);
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

  template <class Threads>
  __device__ void operator()(std::int64_t row, std::int64_t offset, Threads threads) const {
    const bool counts = mask[row * mask_step];
    const T factor = counts ? d_loss[row * d_loss_step] : T{0};
    const std::int64_t target = targets[row];
    const auto share = [&](std::int64_t j) { return math::exp(logits[offset + j] - log_sum[row]) * factor; };
    const bool sure = counts && std::abs(share(target)) > std::abs(factor) / 2;
    double others = 0;
    if (sure) others = row_sum(width, threads, [&](std::int64_t j) { return j == target ? T{0} : share(j); });
    // d_logits may be the logits: no thread writes before all of them have read, and the shuffles of a sum do not
    // order memory.
    threads.sync();
    for (std::int64_t j = threads.index; j < width; j += Threads::count) {
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

void cross_entropy(View loss, View log_sum, View largest, View logits, View targets, View mask) {
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_long_row(logits, LossRow<T>{loss.as<T>(), log_sum.as<T>(), largest.as<std::int64_t>(), logits.as<T>(),
                                         targets.as<std::int32_t>(), mask.as<bool>(), logits.shape[1], row_step(mask)});
  });
}

void cross_entropy_backward(View d_logits, View d_loss, View log_sum, View logits, View targets, View mask) {
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_long_row(logits, LossBackwardRow<T>{d_logits.as<T>(), d_loss.as<T>(), log_sum.as<T>(), logits.as<T>(),
                                                 targets.as<std::int32_t>(), mask.as<bool>(), logits.shape[1],
                                                 row_step(mask), row_step(d_loss)});
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE
