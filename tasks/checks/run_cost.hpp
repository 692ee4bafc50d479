// The time that a run will take, extrapolated from a few measured steps and evaluations.
#pragma once

#include "tasks/runs/config.hpp"

namespace tally {

// Seconds.
struct RunCost {
  double training = 0;
  double evaluations = 0;  // all of the run, with generated answers
};

// Trains up to four steps, takes the fastest, and evaluates a batch of each split. Writes nothing. Throws Error as
// training does.
RunCost measure_cost(const RunConfig& config);

}  // namespace tally
