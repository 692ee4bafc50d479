// tally sweep --status: how far a grid is, from any machine that sees its folder; nothing is written.
#pragma once

#include "tasks/command_line/command.hpp"
#include "tasks/sweep/run_plan.hpp"

namespace tally {

// The numbers of runs by state, who trains which, which ended badly, and what is left at this pace. Takes stock of the
// plan. Exit code 0 whatever it finds.
Result sweep_status(RunPlan& plan);

}  // namespace tally
