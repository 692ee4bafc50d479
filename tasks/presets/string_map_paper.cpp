// Copying as in Kazemnejad et al. 2023 (arXiv 2305.19466): 12 layers, width 768, 12 heads, AdamW at 3e-5 with decay
// 0.05, 40,000 steps of 64 sequences, 6% of them warm-up, dropout 0.1; trained on 1 to 20 symbols. There words of a
// large vocabulary are copied and lengths up to 40 tested; here 26 letters, and up to 50.
//
// GELU, the end of the schedule (0) and start values are ours; the paper trains on 100,000 fixed sequences, here none
// comes twice.
#include "tasks/preset.hpp"

TALLY_PRESET(string_map_paper, "string-map", "paper",
             "NoPE: 1 to 20 of 26 letters copied, 768 wide, 12 layers, 40,000 steps",
             "task.max-length=20 task.far-count=0 "
             "model.layers=12 model.width=768 model.heads=12 model.dropout=0.1 "
             "optimiser.lr=3e-5 optimiser.weight-decay=0.05 optimiser.schedule=linear optimiser.warmup=2400 "
             "steps=40000 batch=64 eval-every=2000 save-every=2000 eval-batch=50");
