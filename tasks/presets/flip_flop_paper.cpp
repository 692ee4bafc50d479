// Flip-flop as in the CoPE paper (arXiv 2405.18719, section 5.1 and appendix C, table 7): width 256, 4 layers, 4 heads,
// 10,000 steps, the error at the last step counts.
//
// Not stated there and taken from Liu et al. (arXiv 2306.00946): weight decay, warm-up, the loss on the bit after r
// alone, and 16 as the batch in all. Ours: 64 positions, p_i = 0.98 out of distribution.
#include "tasks/preset.hpp"

TALLY_PRESET(flip_flop_paper, "flip-flop", "paper", "CoPE paper, table 7: 256 wide, 4 layers, 10,000 steps",
             "optimiser.lr=3e-4 optimiser.weight-decay=0.1 optimiser.schedule=linear optimiser.warmup=50 "
             "steps=10000 eval-every=500 eval-count=1000 save-every=500 eval-batch=32");
