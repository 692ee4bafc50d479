// Selective copy as in the CoPE paper (arXiv 2405.18719, section 5.2): 2 layers, width 64, 2 heads, 100,000 steps.
//
// The paper does not state optimiser, learning rate, schedule, batch, start values or p_max; what stands here for them
// is ours. 512 positions hold the source symbol at p = 256 and tell it from those beyond.
#include "tasks/preset.hpp"

TALLY_PRESET(selective_copy_paper, "selective-copy", "paper", "CoPE paper, section 5.2: 256 symbols, 100,000 steps",
             "model.layers=2 model.width=64 model.heads=2 model.init=fan-in "
             "optimiser.weight-decay=0.1 optimiser.schedule=linear optimiser.warmup=50 "
             "pe.cope.p-max=512 "
             "steps=100000 batch=64 eval-every=5000 save-every=1000 eval-generated=true eval-batch=50");
