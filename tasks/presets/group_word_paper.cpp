// Word problems as in Merrill et al. 2024 (arXiv 2404.08819): width 512, 8 heads, hidden layer 2048, GELU, norms behind
// the sublayers, AdamW at 1e-4 with decay 0.01, batch 512, words of 2 to 20 elements.
//
// The paper asks how few layers are enough and stops at 99%: 4 layers and 20,000 steps are ours.
#include "tasks/preset.hpp"

TALLY_PRESET(
    group_word_paper, "group-word", "paper", "Merrill et al.: words of 20 elements of a5, 512 wide, 4 layers",
    "task.group=a5 task.length=20 task.mix=true "
    "model.layers=4 model.width=512 model.heads=8 model.hidden=2048 model.norm-place=post model.activation=gelu "
    "optimiser.lr=1e-4 optimiser.weight-decay=0.01 "
    "steps=20000 batch=512 eval-every=1000 save-every=1000 eval-batch=100");
