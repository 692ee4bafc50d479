// Copying in minutes on a CPU: 1 to 20 of 26 letters in training, 21 to 50 beyond.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(string_map_quick, "string-map", "quick", "1 to 20 of 26 letters copied, 64 wide, 2 layers, 1,500 steps",
             small_model_with("task.max-length=20 task.far-count=0 optimiser.lr=2e-3 pe.cope.p-max=64 steps=1500 "
                              "batch=32 eval-every=300 save-every=300"));
