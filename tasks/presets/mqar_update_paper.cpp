// Recall of the latest value as in the code of Zoology (Arora et al. 2023, arXiv 2312.04927): 8192 symbols, 9 pairs and
// 4 updates in 128 tokens among random symbols, batch 256, 32 epochs of 100,000 sequences (here never the same one
// twice).
//
// Model and learning rate are those of the preset of mqar; the code mixes several lengths, of which this is one.
#include "tasks/preset.hpp"

TALLY_PRESET(mqar_update_paper, "mqar-update", "paper",
             "Zoology, forgetting: 9 pairs, 4 updates in 128 tokens, 32 epochs",
             "task.vocabulary=8192 task.pairs=9 task.updates=4 task.length=128 task.filler=random "
             "model.layers=2 model.width=128 model.heads=1 "
             "optimiser.lr=2.2e-3 optimiser.weight-decay=0.1 optimiser.schedule=linear optimiser.warmup=50 "
             "steps=12500 batch=256 eval-every=1250 eval-count=500 save-every=1250 eval-batch=50");
