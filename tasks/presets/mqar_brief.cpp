// Associative recall for the table of every encoding on every task.
//
// Seen with seed 1: cope without an error on all splits, absolute 53% wrong with twice the pairs, as after the 2,000
// steps of quick.
#include "tasks/preset.hpp"

TALLY_PRESET_ON(mqar_brief, mqar_quick, "brief", "quick in 800 steps", "steps=800 eval-every=200 save-every=200");
