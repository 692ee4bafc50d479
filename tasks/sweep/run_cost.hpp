// What runs will take in time, from a few steps and evaluations of each, measured before anybody waits for days.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// Seconds, as measured_seconds() counts them.
struct RunCost {
  double step = 0;         // of one training step
  std::int64_t steps = 0;  // of the run
  double evaluations = 0;  // of all that the run makes, generated answers too
  double total() const { return step * static_cast<double>(steps) + evaluations; }
};

// Trains three steps after one that does not count, and evaluates a batch of each split; nothing is written. Throws
// Error as training does.
RunCost measure_cost(const RunConfig& config);

// What the processor has worked for this process so far, all threads together, which other programs on the machine
// hardly stretch; on a GPU time on the clock.
double measured_seconds();

// Runs that differ in nothing but the seed.
struct CostedRuns {
  std::string name;  // of the first
  std::int64_t count = 0;
  RunCost of_each;
  double total() const { return of_each.total() * static_cast<double>(count); }
};

// Markdown, a row each, and what all of them take with so many of them at a time.
std::string cost_text(std::span<const CostedRuns> runs, std::int64_t jobs);
JsonValue cost_json(std::span<const CostedRuns> runs, std::int64_t jobs);

}  // namespace tally
