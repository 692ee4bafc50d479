// Learning rate of step n = 1 .. N with W warm-up steps and C cooldown steps, as a factor of the peak:
//   n <= W   n / W;
//   n >  W   1 (constant), else f + (1-f) r with
//     linear        r = (N+1-n) / (N+1-W);
//     cosine        r = (1 + cos(pi (n-W) / (N+1-W))) / 2;
//     wsd           r = c                       warm-up, stable, decay (Hu et al. 2024, arXiv 2404.06395, section 4);
//     inverse-root  r = c sqrt(max(W,1) / n)    Vaswani et al. 2017, arXiv 1706.03762, equation 3; with a cooldown:
//                                               Zhai et al. 2022, arXiv 2106.04560
//   and, with x = max(0, n-(N-C)) / (C+1), c = 1 - x (linear) or 1 - sqrt(x) (Hägele et al. 2024, arXiv 2405.18392)
// so that all of them except an inverse-root without a cooldown would reach the floor f at step N+1. A run shorter than
// its warm-up only rises.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "nn/optimizer.hpp"

namespace tally {

std::int64_t cooldown_steps(const OptimizerOptions& options, std::int64_t steps) {
  const bool stable = options.schedule == "wsd";
  if (!stable && options.schedule != "inverse-root") return 0;
  const double share = stable && options.cooldown == 0 ? 0.1 : options.cooldown;
  if (share == 0) return 0;
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(steps)));
}

double learning_rate(const OptimizerOptions& options, std::int64_t n, std::int64_t steps) {
  check(1 <= n && n <= steps, "schedule", "step {} is not one of 1 to {}", n, steps);
  if (n <= options.warmup) return options.lr * (static_cast<double>(n) / static_cast<double>(options.warmup));
  const double left = static_cast<double>(steps + 1 - n) / static_cast<double>(steps + 1 - options.warmup);
  if (options.schedule == "constant") return options.lr;
  // With a floor of 0 this is `rest` to the bit.
  const auto above_floor = [&](double rest) { return options.lr_floor * options.lr + (1 - options.lr_floor) * rest; };
  if (options.schedule == "linear") return above_floor(options.lr * left);
  if (options.schedule == "cosine") {
    return above_floor(options.lr * (1 + std::cos(std::numbers::pi * (1 - left))) / 2);
  }
  const std::int64_t cooldown = cooldown_steps(options, steps),
                     cooled = std::max<std::int64_t>(0, n - steps + cooldown);
  const double x = static_cast<double>(cooled) / static_cast<double>(cooldown + 1);
  const double of_cooldown = options.lr * (options.cooldown_shape == "1-sqrt" ? 1 - std::sqrt(x) : 1 - x);
  // The stable steps have exactly the peak, whatever the floor.
  if (options.schedule == "wsd") return cooled == 0 ? options.lr : above_floor(of_cooldown);
  if (options.schedule == "inverse-root") {
    const double peak = static_cast<double>(std::max<std::int64_t>(1, options.warmup));
    return above_floor(of_cooldown * std::sqrt(peak / static_cast<double>(n)));
  }
  fail("schedule", "there are constant, linear, cosine, wsd and inverse-root, not '{}'", options.schedule);
}

}  // namespace tally
