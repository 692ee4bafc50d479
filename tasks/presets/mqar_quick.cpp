// Associative recall in minutes on a CPU: 8 pairs of 31 keys and 32 values.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(mqar_quick, "mqar", "quick", "8 pairs in 64 tokens, 64 wide, 2 layers, 2,000 steps",
             small_model_with("task.vocabulary=64 task.pairs=8 task.length=64 optimiser.lr=3e-3 pe.cope.p-max=64 "
                              "steps=2000 batch=64 eval-every=400 save-every=400"));
