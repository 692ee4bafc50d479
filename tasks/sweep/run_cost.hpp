// The time that runs will take, extrapolated from a few measured steps and evaluations.
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

// Trains one warm-up step and three measured ones, and evaluates a batch of each split. Writes nothing. Throws Error as
// training does.
RunCost measure_cost(const RunConfig& config);

// CPU time of this process over all threads, which other programs on the machine hardly affect. On a GPU it is
// wall-clock time.
double measured_seconds();

// Runs that differ only in the seed.
struct CostedRuns {
  std::string name;  // of the first
  std::int64_t count = 0;
  RunCost of_each;
  double total() const { return of_each.total() * static_cast<double>(count); }
};

// Markdown with a row per group of runs, and the total time with `jobs` runs at a time.
std::string cost_text(std::span<const CostedRuns> runs, std::int64_t jobs);
JsonValue cost_json(std::span<const CostedRuns> runs, std::int64_t jobs);

}  // namespace tally
