// Associative recall as in Zoology (Arora et al. 2023, arXiv 2312.04927, figure 2), its longest texts: 16 pairs of 8192
// symbols in 256 tokens, 2 layers, one head, batch 256, 64 epochs of 100,000 sequences (here never the same one twice).
//
// The paper has widths 64 to 512 and four learning rates from 1e-4 to 1e-2, of which the best is kept: 128 and the
// third of them are ours, as are warm-up and schedule. Its blocks have no MLP; these have one, as all transformers
// here.
#include "tasks/preset.hpp"

TALLY_PRESET(mqar_paper, "mqar", "paper", "Zoology, figure 2: 16 pairs in 256 tokens, 2 layers, one head, 64 epochs",
             "task.vocabulary=8192 task.pairs=16 task.length=256 task.eval-count=3000 "
             "model.layers=2 model.width=128 model.heads=1 "
             "optimiser.lr=2.2e-3 optimiser.weight-decay=0.1 optimiser.schedule=linear optimiser.warmup=50 "
             "steps=25000 batch=256 eval-every=1250 eval-count=500 save-every=1250 eval-batch=50");
