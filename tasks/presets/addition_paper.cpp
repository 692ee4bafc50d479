// Addition as in Kazemnejad et al. 2023 (arXiv 2305.19466): operands of 1 to 8 digits, most significant first, beyond
// them 9 to 16; the model and training of its preset for string-map.
//
// GELU, the end of the schedule (0) and start values are ours; the paper trains on 100,000 fixed sequences, here none
// comes twice.
#include "tasks/preset.hpp"

TALLY_PRESET(addition_paper, "addition", "paper", "NoPE: 1 to 8 digits, 768 wide, 12 layers, 40,000 steps",
             "task.max-digits=8 task.order=big "
             "model.layers=12 model.width=768 model.heads=12 model.dropout=0.1 "
             "optimiser.lr=3e-5 optimiser.weight-decay=0.05 optimiser.schedule=linear optimiser.warmup=2400 "
             "steps=40000 batch=64 eval-every=2000 save-every=2000 eval-batch=50");
