// Even pairs in minutes on a CPU: 1 to 20 bits in training, 21 to 50 beyond.
#include "tasks/preset.hpp"
#include "tasks/presets/small_model.hpp"

TALLY_PRESET(even_pairs_quick, "even-pairs", "quick", "1 to 20 bits, 64 wide, 2 layers, 2,000 steps",
             small_model_with("task.max-length=20 task.far-count=0 optimiser.lr=2e-3 pe.cope.p-max=64 steps=2000 "
                              "batch=64 eval-every=400 save-every=400"));
