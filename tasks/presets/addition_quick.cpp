// Addition in minutes on a CPU: up to 6 digits in training, 7 to 12 beyond, least significant digit first. With
// --task.order big the same shows what that order is worth.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(addition_quick, "addition", "quick",
             "1 to 6 digits, least significant first, 64 wide, 2 layers, 3,000 steps",
             small_model_with("task.max-digits=6 task.order=little optimiser.lr=2e-3 pe.cope.p-max=32 steps=3000 "
                              "batch=64 eval-every=500 save-every=500"));
