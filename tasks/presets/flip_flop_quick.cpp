// Flip-flop in minutes on a CPU: shorter, narrower and with start values and a learning rate that let small models
// learn within 1,000 steps. A length of 64 would be too short to tell encodings apart.
#include "tasks/preset.hpp"

TALLY_PRESET(flip_flop_quick, "flip-flop", "quick", "length 128, 64 wide, 2 layers, 1,000 steps",
             "task.length=128 task.eval-count=5000 task.sparse-count=5000 task.dense-count=5000 "
             "model.layers=2 model.width=64 model.init=fan-in "
             "optimiser.beta2=0.99 optimiser.weight-decay=0.1 optimiser.decay=matrices optimiser.clip=1 "
             "optimiser.schedule=linear optimiser.warmup=50 "
             "eval-every=100 eval-count=250 save-every=100 eval-batch=100");
