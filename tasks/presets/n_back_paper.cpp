// N-back as in the PaTH paper (arXiv 2505.16381, figure 2): 32 keys and values, 768 tokens, 2 layers, width 256, 2
// heads. N is 2 here and 1 to 4 there.
//
// Learning rate, batch, number of steps and p_max are ours; nothing is stated.
#include "tasks/preset.hpp"

TALLY_PRESET(n_back_paper, "n-back", "paper", "PaTH, figure 2: 384 pairs of 32 keys, 256 wide, 2 layers",
             "task.pairs=384 task.keys=32 task.values=32 task.n=2 "
             "model.layers=2 model.width=256 model.heads=2 "
             "optimiser.weight-decay=0.1 optimiser.schedule=linear optimiser.warmup=50 pe.cope.p-max=64 "
             "steps=20000 batch=64 eval-every=1000 eval-count=100 save-every=1000 eval-batch=25");
