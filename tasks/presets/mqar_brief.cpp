// Associative recall for the table of every encoding on every task: 4 pairs of 15 keys and 16 values.
//
// Seen with cope, seed 1: no error in distribution and in longer texts, 0.05% with twice the pairs.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(mqar_brief, mqar_quick, "brief", "4 pairs in 32 tokens, 800 steps",
                "task.vocabulary=32 task.pairs=4 task.length=32 steps=800 eval-every=200 save-every=200");
