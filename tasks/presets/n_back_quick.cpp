// N-back in a minute on a CPU: the value before the latest, of 4 keys and 8 values.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(n_back_quick, "n-back", "quick", "24 pairs of 4 keys, 64 wide, 2 layers, 500 steps",
             small_model_with("task.pairs=24 task.keys=4 task.values=8 task.n=2 optimiser.lr=3e-3 pe.cope.p-max=16 "
                              "steps=500 batch=16 eval-every=100 save-every=100"));
