// Learning rate of step n = 1 .. N with W warm-up steps, as a factor of the peak:
//   n <= W   n / W
//   n >  W   1 (constant), f + (1-f) r with r = (N+1-n) / (N+1-W) (linear), (1 + cos(pi (n-W) / (N+1-W))) / 2 (cosine)
// so that linear and cosine would reach the floor f at step N+1. A run shorter than its warm-up only rises.
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "nn/optimizer.hpp"

namespace tally {

double learning_rate(const OptimizerOptions& options, std::int64_t n, std::int64_t steps) {
  check(1 <= n && n <= steps, "schedule", "step ", n, " is not one of 1 to ", steps);
  if (n <= options.warmup) return options.lr * (static_cast<double>(n) / static_cast<double>(options.warmup));
  const double left = static_cast<double>(steps + 1 - n) / static_cast<double>(steps + 1 - options.warmup);
  if (options.schedule == "constant") return options.lr;
  // Where the floor is 0, what is left of the rate to the bit.
  const auto above_floor = [&](double rest) { return options.lr_floor * options.lr + (1 - options.lr_floor) * rest; };
  if (options.schedule == "linear") return above_floor(options.lr * left);
  if (options.schedule == "cosine") {
    return above_floor(options.lr * (1 + std::cos(std::numbers::pi * (1 - left))) / 2);
  }
  fail("schedule", "there are constant, linear and cosine, not '", options.schedule, "'");
}

}  // namespace tally
