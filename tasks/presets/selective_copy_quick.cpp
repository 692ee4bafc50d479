// Selective copy in minutes on a CPU: the model of the CoPE paper on 16 symbols among 16 blanks, 8 and 32 blanks out of
// distribution.
#include "tasks/preset.hpp"

TALLY_PRESET(selective_copy_quick, "selective-copy", "quick", "16 symbols, 64 wide, 2 layers, 1,500 steps",
             "task.non-blanks=16 task.blanks=16 task.dense-blanks=8 task.sparse-blanks=32 "
             "model.layers=2 model.width=64 model.heads=2 model.init=fan-in "
             "optimiser.beta2=0.99 optimiser.weight-decay=0.1 optimiser.decay=matrices optimiser.clip=1 "
             "optimiser.schedule=linear optimiser.warmup=50 "
             "steps=1500 batch=64 eval-every=300 save-every=300 eval-generated=true eval-batch=100");
