// Cross entropy from logits l, row by row:
//   loss = log sum_v e^(l_v) - l_target,  d_l_v = (e^(l_v - log_sum) - [v = target]) d_loss
// Rows that are masked out have loss 0 and gradient 0; their targets are not read.
//
// For a target with a probability near 1, e^(l - log_sum) - 1 would keep only rounding errors. There the gradient is
// minus the sum of the other probabilities: the same number, with a small relative error in each term.
#include <cmath>

#include "core/cpu/lanes.hpp"
#include "core/cpu/rows.hpp"
#include "core/device/kernels.hpp"

namespace tally::cpu {

namespace {

// The exponentials of a row are formed chunk by chunk, so that a large vocabulary needs no scratch row.
template <class T>
TALLY_CLONES double log_sum_exp(const T* x, std::int64_t n) {
  constexpr std::int64_t chunk = 512;
  T exponential[chunk];
  const T m = lane_max<T>(n, [&](std::int64_t j) TALLY_INLINED { return x[j]; });
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    const std::int64_t count = std::min(chunk, n - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) exponential[j] = math::exp(x[begin + j] - m);
    sum += lane_sum(count, [&](std::int64_t j) TALLY_INLINED { return exponential[j]; });
  }
  return static_cast<double>(m) + std::log(sum);
}

template <class T>
TALLY_CLONES void exp_minus(T* y, const T* x, T log_sum, T factor, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) y[j] = math::exp(x[j] - log_sum) * factor;
}

template <class T>
TALLY_CLONES double sum_of(const T* x, std::int64_t n) {
  return lane_sum(n, [&](std::int64_t j) TALLY_INLINED { return x[j]; });
}

// Counts the logarithm of a row as 128 elements.
std::int64_t rows_per_task(std::int64_t width) { return rows_per_tile(width + 128); }

}  // namespace

void cross_entropy(View loss, View log_sum, View largest, View logits, View targets, View mask) {
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  const std::int64_t mask_step = row_step(mask);
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for_blocks(rows, rows_per_task(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const x = logits.as<T>() + row * width;
        const double sum = log_sum_exp(x, width);
        log_sum.as<T>()[row] = static_cast<T>(sum);
        if (largest) largest.as<std::int64_t>()[row] = index_of_largest(x, width);
        loss.as<T>()[row] = mask.as<bool>()[row * mask_step]
                                ? static_cast<T>(sum - static_cast<double>(x[targets.as<std::int32_t>()[row]]))
                                : T{0};
      }
    });
  });
}

void cross_entropy_backward(View d_logits, View d_loss, View log_sum, View logits, View targets, View mask) {
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  const std::int64_t mask_step = row_step(mask), d_loss_step = row_step(d_loss);
  dispatch_floating(logits.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for_blocks(rows, rows_per_task(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const d_x = d_logits.as<T>() + row * width;
        if (!mask.as<bool>()[row * mask_step]) {
          std::fill_n(d_x, width, T{0});
          continue;
        }
        const T factor = d_loss.as<T>()[row * d_loss_step];
        exp_minus(d_x, logits.as<T>() + row * width, log_sum.as<T>()[row], factor, width);
        T& d_target = d_x[targets.as<std::int32_t>()[row]];
        if (std::abs(d_target) > std::abs(factor) / 2) {
          d_target = 0;
          d_target = static_cast<T>(-sum_of(d_x, width));
        } else {
          d_target -= factor;
        }
      }
    });
  });
}

}  // namespace tally::cpu
