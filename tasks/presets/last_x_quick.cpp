// Last x in a minute or two on a CPU: gaps 0 to 7 in training, 8 to 15 and 16 to 27 beyond it.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(last_x_quick, "last-x", "quick", "length 32, gaps up to 7, 64 wide, 2 layers, 400 steps",
             small_model_with("task.length=32 task.near-gap=7 task.far-gap=15 task.farther-gap=27 optimiser.lr=2e-3 "
                              "pe.cope.p-max=16 steps=400 batch=16 eval-every=100 save-every=100"));
