// tally sweep --status: the progress of a sweep, from any machine that can read its folder. It writes nothing.
#pragma once

#include "tasks/command_line/command.hpp"
#include "tasks/sweep/run_plan.hpp"

namespace tally {

// The number of runs in each state, the holders of claims, the failed runs, and the remaining time, after
// take_stock(). The exit code is always 0.
Result sweep_status(RunPlan& plan);

}  // namespace tally
