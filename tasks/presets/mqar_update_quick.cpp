// Recall of the latest value in minutes on a CPU: 8 pairs of 31 keys and 32 values, 4 keys assigned anew.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(mqar_update_quick, "mqar-update", "quick",
             "8 pairs, 4 updates in 64 tokens, 64 wide, 2 layers, 2,000 steps",
             small_model_with("task.vocabulary=64 task.pairs=8 task.updates=4 task.length=64 optimiser.lr=2e-3 "
                              "pe.cope.p-max=64 steps=2000 batch=64 eval-every=400 save-every=400"));
