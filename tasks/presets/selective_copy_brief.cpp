// Selective copy for the table of every encoding on every task.
//
// Seen with seed 1: cope without an error on all splits, no sequence right without an encoding.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(selective_copy_brief, selective_copy_quick, "brief", "quick in 1,000 steps of 32 sequences",
                "steps=1000 batch=32 eval-every=250 save-every=250 eval-count=250 eval-generated=false");
