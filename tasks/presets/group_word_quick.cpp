// The word problem of the smallest group that does not commute, in minutes on a CPU.
//
// Measured: tests/results/state-tracking.md. More steps than these are needed to solve it.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(group_word_quick, "group-word", "quick", "s3, 8 elements, 64 wide, 2 layers, 3,000 steps",
             small_model_with("task.group=s3 task.length=8 optimiser.lr=2e-3 pe.cope.p-max=16 steps=3000 batch=32 "
                              "eval-every=500 save-every=500"));
