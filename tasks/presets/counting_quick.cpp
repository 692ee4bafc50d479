// Counting in minutes on a CPU: programs of 3 to 48 operations in 64 tokens. A training set large enough that no
// program is seen twice stands in for the paper's dropout.
#include "tasks/preset.hpp"

TALLY_PRESET(counting_quick, "counting", "quick", "3 to 48 operations, 64 wide, 2 layers, 1,500 steps",
             "task.max-operations=48 task.max-tokens=64 task.train-count=96000 "
             "model.layers=2 model.width=64 model.init=fan-in "
             "optimiser.lr=3e-3 optimiser.beta2=0.99 optimiser.weight-decay=0.1 optimiser.decay=matrices "
             "optimiser.clip=1 optimiser.schedule=linear optimiser.warmup=50 "
             "steps=1500 batch=64 eval-every=300 save-every=300 eval-batch=100");
